// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program and Linux's KVM say to each other on POWER (Linux, Documentation/virt/kvm/api.rst and
//! devices/xive.rst, devices/xics.rst). `kvm-bindings` has nothing for this architecture.

use std::ffi::c_void;

/// What KVM's ioctls are numbered under.
const KVM: u8 = 0xae;

/// The number of an ioctl without an argument of its own.
pub const fn plain(number: u8) -> rustix::ioctl::Opcode {
    rustix::ioctl::opcode::none(KVM, number)
}

/// The number of an ioctl that reads its argument.
pub const fn taking<T>(number: u8) -> rustix::ioctl::Opcode {
    rustix::ioctl::opcode::write::<T>(KVM, number)
}

/// The number of an ioctl that writes its argument.
pub const fn giving<T>(number: u8) -> rustix::ioctl::Opcode {
    rustix::ioctl::opcode::read::<T>(KVM, number)
}

/// The number of an ioctl that reads and writes its argument.
pub const fn both<T>(number: u8) -> rustix::ioctl::Opcode {
    rustix::ioctl::opcode::read_write::<T>(KVM, number)
}

/// `KVM_CREATE_VM`.
pub const CREATE_VM: u8 = 0x01;
/// `KVM_GET_VCPU_MMAP_SIZE`.
pub const VCPU_MMAP_SIZE: u8 = 0x04;
/// `KVM_CREATE_VCPU`.
pub const CREATE_VCPU: u8 = 0x41;
/// `KVM_SET_USER_MEMORY_REGION`.
pub const SET_MEMORY: u8 = 0x46;
/// `KVM_RUN`.
pub const RUN: u8 = 0x80;
/// `KVM_GET_REGS`.
pub const GET_REGS: u8 = 0x81;
/// `KVM_SET_REGS`.
pub const SET_REGS: u8 = 0x82;
/// `KVM_ENABLE_CAP`.
pub const ENABLE_CAP: u8 = 0xa3;
/// `KVM_GET_ONE_REG`.
pub const GET_ONE_REG: u8 = 0xab;
/// `KVM_SET_ONE_REG`.
pub const SET_ONE_REG: u8 = 0xac;
/// `KVM_IOEVENTFD`.
pub const IOEVENTFD: u8 = 0x79;
/// `KVM_PPC_CONFIGURE_V3_MMU`.
pub const CONFIGURE_MMU: u8 = 0xaf;
/// `KVM_CREATE_DEVICE`.
pub const CREATE_DEVICE: u8 = 0xe0;
/// `KVM_SET_DEVICE_ATTR`.
pub const SET_DEVICE_ATTR: u8 = 0xe1;
/// `KVM_GET_DEVICE_ATTR`.
pub const GET_DEVICE_ATTR: u8 = 0xe2;

/// `KVM_VM_PPC_HV`: a machine in hypervisor mode, not one that is emulated in problem state.
pub const VM_HV: *mut c_void = std::ptr::without_provenance_mut(1);

/// `KVM_CAP_PPC_PAPR`: the guest makes hypercalls as PAPR says.
pub const CAP_PAPR: u32 = 68;
/// `KVM_CAP_IRQ_XICS`: a vCPU's presentation controller.
pub const CAP_XICS: u32 = 92;
/// `KVM_CAP_PPC_ENABLE_HCALL`: the kernel answers a hypercall.
pub const CAP_ENABLE_HCALL: u32 = 104;
/// `KVM_CAP_PPC_IRQ_XIVE`: a vCPU's ring of XIVE.
pub const CAP_XIVE: u32 = 169;

/// `KVM_DEV_TYPE_XICS`.
pub const DEVICE_XICS: u32 = 3;
/// `KVM_DEV_TYPE_XIVE`.
pub const DEVICE_XIVE: u32 = 9;

/// XIVE's group of sources: the attribute is the source's number.
pub const XIVE_SOURCE: u32 = 2;
/// XIVE's group of sources' targets.
pub const XIVE_SOURCE_CONFIG: u32 = 3;
/// XIVE's group of event queues: the attribute is the priority and, above it, the server.
pub const XIVE_QUEUE_CONFIG: u32 = 4;
/// XIVE's group that waits for a source's events.
pub const XIVE_SOURCE_SYNC: u32 = 5;
/// The first page of the thread management area in the device's mapping.
pub const XIVE_TIMA_PAGE: u64 = 0;
/// The first page of the event state buffers there.
pub const XIVE_ESB_PAGE: u64 = 4;

/// `KVM_REG_PPC_LPCR_64`.
pub const REG_LPCR: u64 = 0x1030_0000_0000_00b5;

/// `KVM_EXIT_MMIO`.
pub const EXIT_MMIO: u32 = 6;
/// `KVM_EXIT_PAPR_HCALL`.
pub const EXIT_HCALL: u32 = 19;

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryRegion {
    /// Tells regions apart.
    pub slot: u32,
    /// None here.
    pub flags: u32,
    /// Where the guest has it.
    pub guest: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Where this process has it.
    pub user: u64,
}

/// `struct kvm_ioeventfd`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoEvent {
    /// The value that is meant, if a flag says so.
    pub value: u64,
    /// Where.
    pub address: u64,
    /// Of how many bytes the access is; zero means all.
    pub length: u32,
    /// The event's file.
    pub fd: i32,
    /// None here.
    pub flags: u32,
    /// Zero.
    pub pad: [u8; 36],
}

/// `struct kvm_enable_cap`.
#[repr(C)]
#[derive(Debug)]
pub struct EnableCap {
    /// Which.
    pub cap: u32,
    /// None here.
    pub flags: u32,
    /// What it takes.
    pub args: [u64; 4],
    /// Zero.
    pub pad: [u8; 64],
}

/// `struct kvm_one_reg`.
#[repr(C)]
#[derive(Debug)]
pub struct OneReg {
    /// Which register.
    pub id: u64,
    /// Where its value is.
    pub address: u64,
}

/// `struct kvm_ppc_mmuv3_cfg`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MmuConfig {
    /// `RADIX`, `GTSE`.
    pub flags: u64,
    /// The second doubleword of the partition table's entry.
    pub process_table: u64,
}

impl MmuConfig {
    /// The guest has radix trees.
    pub const RADIX: u64 = 1;
    /// It invalidates translations itself.
    pub const GTSE: u64 = 2;
    /// The same in the entry, without a table.
    pub const TABLE_RADIX: u64 = 1 << 63;
}

/// `struct kvm_create_device`.
#[repr(C)]
#[derive(Debug)]
pub struct CreateDevice {
    /// Which.
    pub kind: u32,
    /// Its file, from the kernel.
    pub fd: u32,
    /// None here.
    pub flags: u32,
}

/// `struct kvm_device_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct DeviceAttr {
    /// None.
    pub flags: u32,
    /// The group.
    pub group: u32,
    /// Which of the group.
    pub attr: u64,
    /// Where its value is.
    pub address: u64,
}

/// `struct kvm_ppc_xive_eq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XiveQueue {
    /// Whether each event notifies: it must.
    pub flags: u32,
    /// The logarithm of its size; zero if there is none.
    pub shift: u32,
    /// Where the guest has it.
    pub address: u64,
    /// The generation that the next event has.
    pub toggle: u32,
    /// Where the next event goes.
    pub index: u32,
    /// Zero.
    pub pad: [u64; 5],
}

/// `struct kvm_regs`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct Registers {
    /// The next instruction.
    pub pc: u64,
    /// The condition register.
    pub cr: u64,
    /// The count register.
    pub ctr: u64,
    /// The link register.
    pub lr: u64,
    /// The fixed-point exception register.
    pub xer: u64,
    /// The machine state.
    pub msr: u64,
    /// Where an interrupt came from.
    pub srr0: u64,
    /// The machine state that an interrupt interrupted.
    pub srr1: u64,
    /// The process.
    pub pid: u64,
    /// Registers for the operating system's use.
    pub sprg: [u64; 8],
    /// General registers.
    pub gpr: [u64; 32],
}

/// An exit to this program for a hypercall, in `struct kvm_run`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hcall {
    /// The hypercall's number.
    pub number: u64,
    /// What it returns.
    pub result: u64,
    /// Its arguments, and what it returns beside.
    pub args: [u64; 9],
}

/// An exit to this program for an access to a device, in `struct kvm_run`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mmio {
    /// The guest's real address.
    pub address: u64,
    /// The bytes, in the order of addresses.
    pub data: [u8; 8],
    /// How many of them.
    pub length: u32,
    /// Whether the guest writes.
    pub write: u8,
}

/// What an exit was for.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Cause {
    /// With `EXIT_HCALL`.
    pub hcall: Hcall,
    /// With `EXIT_MMIO`.
    pub mmio: Mmio,
}

/// `struct kvm_run`, as far as it is used.
#[repr(C)]
pub struct Run {
    requests: u64,
    /// Why the guest was left.
    pub reason: u32,
    flags: u32,
    unused: [u64; 2],
    /// More about it.
    pub cause: Cause,
}
