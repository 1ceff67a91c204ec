// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service with a model of a controller, driven as a guest drives it through the hypervisor.

mod direct;
mod host;
mod killed;
mod shared;
mod troubles;
mod works;
