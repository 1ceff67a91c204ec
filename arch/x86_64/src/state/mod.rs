// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU's state consists of, by groups: they know neither a vCPU nor a VM.
//!
//! | file | what |
//! |---|---|
//! | [`owned`] | what only the CPU touches where the vCPU is resident |
//! | [`asid`] | by which a TLB tells who runs on its CPU |
//! | [`facility`], [`extended`] | what stays in registers until another vCPU needs them |
//! | [`nmi`] | NMIs, and the IRET that ends one |
//! | [`kvm`] | what the guest has asked for of KVM's interface |
//! | [`walks`] | how code that accesses devices was found in the guest's memory |
//! | [`start`] | what the first vCPU of a VM begins with |
//! | `saved` | where state goes on exits that do without techniques (feature `ablation`) |

pub mod asid;
pub mod extended;
pub mod facility;
pub mod kvm;
pub mod nmi;
pub mod owned;
#[cfg(feature = "ablation")]
pub mod saved;
pub mod start;
pub mod walks;
