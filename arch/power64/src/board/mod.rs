// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine has beside its CPUs.
//!
//! | file | what |
//! |---|---|
//! | `discover` | what machine this is |
//! | `opal` | its firmware's services |
//! | `uart`, `power` | the serial line; how it is powered off |
//! | `mitigation` | what exits and entries do against speculation, where that is needed |

pub mod discover;
pub mod mitigation;
pub mod opal;
pub mod power;
pub mod uart;
