// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The serial port of a guest machine as a service: a PL011 on arm64, a 16550 on a PC, and the terminal of a POWER guest, which it
//! reaches by calls. It has one device, number 0, and one interrupt line.
//!
//! It takes typed characters while the guest has fewer than 16 to read; the hypervisor keeps the others. What it is after an
//! event it keeps before it answers, so a crash loses at most the characters that the guest was reading.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]
#![cfg_attr(not(target_os = "none"), allow(dead_code, reason = "each architecture uses one of the devices"))]

#[cfg(not(all(target_os = "none", target_arch = "powerpc64")))]
mod lines;
#[cfg(not(all(target_os = "none", target_arch = "powerpc64")))]
mod record;
#[cfg(any(not(target_os = "none"), target_arch = "powerpc64"))]
mod terminal;

use turnstile_service_rt::service;

#[cfg(target_arch = "aarch64")]
service!(lines::Uart<turnstile_devices::Pl011>);
#[cfg(target_arch = "powerpc64")]
service!(terminal::Terminal);
#[cfg(not(any(target_arch = "aarch64", target_arch = "powerpc64")))]
service!(lines::Uart<turnstile_devices::Uart16550>);
