// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, driven as guests drive it through the hypervisor.

mod driver;
mod e1000e;
mod host;
mod hostile;
mod killed;
mod packets;
mod pairs;
mod uplink;
mod waits;
