// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest's state consists of, by groups: types that can store, load and reset, and what a guest is offered. They
//! know neither vCPU nor VM.

pub mod common;
pub mod debug;
pub mod facilities;
pub mod fp;
pub mod idregs;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod pauth;
pub mod pmu;
pub mod sve;
pub mod system;
pub mod timers;
pub mod trapped_pmu;
pub mod traps;

pub use facilities::Facility;
pub use system::{Deferred, SystemState};
pub use timers::Timers;
