// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests under the load: a program of ours, whose load is nearly nothing but interrupts, and Debian's Linux, which does with
//! each what a kernel does.

use serde::Serialize;

/// What Linux says when its second begins, and when it ends.
pub const LINUX_BEGIN: &str = "turnstile: load begin";
/// See [`LINUX_BEGIN`].
pub const LINUX_END: &str = "turnstile: load end";

/// A guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Guest {
    /// The guest `load` of `guests/`.
    Load,
    /// Debian's kernel, with the load of `tool/src/setup/guest/init`.
    Linux,
}

impl Guest {
    /// All guests.
    pub const ALL: [Guest; 2] = [Guest::Load, Guest::Linux];

    /// Its name on the command line and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Guest::Load => "load",
            Guest::Linux => "linux",
        }
    }

    /// Its usual number of vCPUs: Linux has no IPIs with one.
    pub fn vcpus(self) -> u16 {
        match self {
            Guest::Load => 1,
            Guest::Linux => 2,
        }
    }

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Guest::Load => "The guest `load`",
            Guest::Linux => "Debian's Linux",
        }
    }
}

/// A guest, and what it is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The guest.
    pub guest: Guest,
    /// Its vCPUs.
    pub vcpus: u16,
    /// Whether it ends interrupts without an exit where it can.
    pub pv_eoi: bool,
}

impl Case {
    /// The words of the command line of the guest `load` with which it ends each interrupt by a write.
    pub fn options(self) -> &'static str {
        if self.pv_eoi { "" } else { "pv-eoi=off" }
    }
}
