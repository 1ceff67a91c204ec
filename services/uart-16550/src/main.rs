// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A 16550 as a service on any architecture: on arm64, machines with kvmtool's addresses have one. Otherwise it is the program `uart`.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "its tests are those of the program `uart`"))]
#[path = "../../uart/src/lines.rs"]
mod lines;
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "as above"))]
#[path = "../../uart/src/record.rs"]
mod record;

use turnstile_service_rt::service;

service!(lines::Uart<turnstile_devices::Uart16550>);
