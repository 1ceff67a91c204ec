// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which network card QEMU gets for an uplink.

/// A network card of QEMU's that networks drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkCard {
    /// That of virtio.
    #[default]
    Virtio,
    /// Intel's 82574.
    E1000e,
}

impl NetworkCard {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Virtio, Self::E1000e];

    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000e => "e1000e",
        }
    }
}
