// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM's interrupt controller looks like.

/// Says which architecture a VM's interrupt controller follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Model {
    /// GICv2 (Arm IHI 0048): at most [`MAX_GICV2_VCPUS`](crate::MAX_GICV2_VCPUS), no redistributors, SGIs that know their sender.
    ///
    /// The guest's CPU interface is the hardware's `GICV`, of which stage 2 must not map the second 4 KiB
    /// page: it holds `GICV_DIR` and nothing else, and its writes are for [`VcpuGic::dir`](crate::VcpuGic::dir).
    /// There is no other way to learn that a vCPU has deactivated an SPI which is in another's list register,
    /// or in none. It costs guests with EOImode 0 nothing, because they never write it.
    Gicv2,
    /// GICv3 with affinity routing (Arm IHI 0069).
    #[default]
    Gicv3,
}

/// Says what a VM's interrupt controller looks like.
#[derive(Clone, Copy, Debug)]
pub struct VgicConfig<'a> {
    /// The architecture.
    pub model: Model,
    /// The affinity of each vCPU, as in `MPIDR_EL1` (other bits are ignored); all different.
    pub mpidrs: &'a [u64],
    /// The number of SPIs: a multiple of 32, at most [`MAX_SPIS`](crate::MAX_SPIS).
    pub spis: u32,
    /// The number of priority bits, 4 to 8; not more than the list registers hold (`ICH_VTR_EL2.PRIbits`
    /// plus one).
    pub priority_bits: u8,
    /// Whether interrupts are in Group 1 after a reset. The architecture leaves it to firmware; guests
    /// that boot without firmware count on Group 1. With GICv2 they are in Group 0 whatever this says:
    /// guests that know of no groups acknowledge nothing else.
    pub group1_at_reset: bool,
}

/// Says why a [`VgicConfig`] cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No vCPU, or more than [`MAX_VCPUS`](crate::MAX_VCPUS), or than [`MAX_GICV2_VCPUS`](crate::MAX_GICV2_VCPUS) with GICv2.
    Vcpus,
    /// Two vCPUs have the same affinity.
    Affinities,
    /// Not a multiple of 32 up to [`MAX_SPIS`](crate::MAX_SPIS).
    Spis,
    /// Not 4 to 8.
    PriorityBits,
}
