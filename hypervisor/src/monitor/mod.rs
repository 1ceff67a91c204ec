// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits of one architecture alone ask of the hypervisor: of the VM's devices.

#[cfg(target_arch = "aarch64")]
mod arm64;
#[cfg(target_arch = "powerpc64")]
mod power64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
