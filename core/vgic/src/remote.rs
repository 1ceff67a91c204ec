// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one vCPU may ask of another. Interrupts are posted. Everything else is an operation that the other's own physical CPU
//! executes, so nobody ever touches another's [`VcpuGic`].

use crate::{VcpuGic, Vgic, VirtualInterface};

/// Is an operation on a vCPU's interrupts for its owner to execute with [`VcpuGic::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteOp {
    /// Reads a register of the redistributor; returns the value.
    RedistRead {
        /// The offset in the vCPU's two frames.
        offset: u32,
        /// The size in bytes.
        size: u8,
    },
    /// Writes a register of the redistributor.
    RedistWrite {
        /// The offset in the vCPU's two frames.
        offset: u32,
        /// The size in bytes.
        size: u8,
        /// The value.
        value: u64,
    },
    /// Returns the SPIs that the vCPU holds as pending (bits 31:0) and active (63:32) among INTIDs
    /// 32 * `block` and up.
    State {
        /// The block of 32 INTIDs.
        block: u32,
    },
    /// Brings an SPI that the vCPU may hold in line with its distributor state: it was disabled.
    Recall {
        /// The INTID.
        intid: u32,
    },
    /// Takes the pending state from an SPI that the vCPU may hold.
    ClearPending {
        /// The INTID.
        intid: u32,
    },
    /// Makes an SPI active; returns 1, or 0 if another vCPU holds it by now.
    Activate {
        /// The INTID.
        intid: u32,
    },
    /// Deactivates an SPI that the vCPU may hold.
    Deactivate {
        /// The INTID.
        intid: u32,
    },
}

/// Is posted in the place of an INTID, of a private interrupt that nobody posts: that the vCPU looks at the group enables of
/// `GICD_CTLR` again.
pub const GROUPS_CHANGED: u32 = 16;

/// Is what surrounds the vCPUs: it carries interrupts and operations from one to another.
pub trait Host {
    /// Makes `vcpu` call [`VcpuGic::deliver`] with `intid` soon (a sticky bit in its inbox and its
    /// attention word, and a kick if it is in the guest). May be the calling vCPU itself. A vCPU that
    /// is off keeps the bit, but looks at [`GROUPS_CHANGED`].
    fn post(&self, vcpu: usize, intid: u32);

    /// Says whether `vcpu` is in a CPU, so that it may be in its guest and not have looked at what was posted to it. One that
    /// is in none looks before it is.
    fn is_resident(&self, vcpu: usize) -> bool;

    /// Executes `op` on another vCPU by [`VcpuGic::apply`] and returns the result. A vCPU that is loaded,
    /// in its guest or off, is operated on the physical CPU whose list registers it has; one that is not
    /// ([`VcpuGic::put`]) may be operated here. The caller's own `me` and `vif` are passed so that
    /// operations that others send here can be executed while this waits for theirs: two vCPUs may ask
    /// each other at once.
    fn remote<V: VirtualInterface>(&self, me: &mut VcpuGic, vif: &mut V, vcpu: usize, op: RemoteOp) -> u64;
}

/// Is everything around a [`VcpuGic`] that its operations work with.
pub struct Context<'a, V, H> {
    /// The VM's distributor.
    pub vgic: &'a Vgic,
    /// The virtual CPU interface of this physical CPU.
    pub vif: &'a mut V,
    /// The way to the other vCPUs.
    pub host: &'a H,
}
