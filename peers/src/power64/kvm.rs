// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM's files: the system's, a virtual machine's, a vCPU's, an interrupt controller's.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::abi::{self, CreateDevice, DeviceAttr, EnableCap, MemoryRegion, OneReg, Registers, Run};

/// One call to KVM.
struct Call {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: the number tells what the argument points to; see `call`, the only one to make them.
unsafe impl Ioctl for Call {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _argument: *mut c_void) -> Result<i32> {
        Ok(output)
    }
}

/// Makes a call whose argument is a number.
fn number(file: &impl AsFd, opcode: Opcode, argument: usize) -> Result<i32> {
    // SAFETY: callers name ioctls whose argument is a number.
    unsafe { ioctl(file, Call { opcode, argument: std::ptr::without_provenance_mut(argument) }) }
}

/// Makes a call whose argument is read and written as the number, which holds its size, says.
fn with<T>(file: &impl AsFd, opcode: Opcode, argument: &mut T) -> Result<i32> {
    // SAFETY: the number was made from `T`, and the structures of `abi` are what the kernel knows by it.
    unsafe { ioctl(file, Call { opcode, argument: std::ptr::from_mut(argument).cast() }) }
}

/// A file that the kernel has just made.
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel returned it as a new file, which nobody else knows.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn enable(file: &impl AsFd, cap: u32, args: [u64; 4]) -> Result<()> {
    let mut cap = EnableCap { cap, flags: 0, args, pad: [0; 64] };
    with(file, abi::taking::<EnableCap>(abi::ENABLE_CAP), &mut cap).map(drop)
}

/// Memory that is mapped into this process for as long as it lives.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the bytes are the guest's, which changes them at any time; nobody here holds a reference to them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of its own, all zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn anonymous(size: usize) -> Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let start = unsafe { rustix::mm::mmap_anonymous(null_mut(), size, protection, flags)? };
        Ok(Mapping { start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()), size })
    }

    fn of(file: BorrowedFd<'_>, offset: u64, size: usize) -> Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: as above.
        let start = unsafe { mmap(null_mut(), size, protection, flags, file, offset)? };
        Ok(Mapping { start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()), size })
    }

    fn place(&self, address: u64, length: usize) -> Option<*mut u8> {
        let address = usize::try_from(address).ok()?;
        let end = address.checked_add(length)?;
        // SAFETY: the range lies in the mapping.
        (end <= self.size).then(|| unsafe { self.start.as_ptr().add(address) })
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Loads eight bytes of a device, as they are.
    pub fn load(&self, address: u64) -> Option<u64> {
        let from = self.place(address, size_of::<u64>())?.cast::<u64>();
        // SAFETY: `place` has checked the range. Volatile: the device answers.
        from.is_aligned().then(|| unsafe { from.read_volatile() })
    }

    /// Stores eight bytes to a device, as they are.
    pub fn store(&self, address: u64, value: u64) -> Option<()> {
        let to = self.place(address, size_of::<u64>())?.cast::<u64>();
        // SAFETY: as for `load`.
        to.is_aligned().then(|| unsafe { to.write_volatile(value) })
    }

    /// Copies bytes into it, if there is room for them.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        let to = self.place(address, bytes.len())?;
        // SAFETY: `place` has checked the range; the guest's memory overlaps nothing of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Some(())
    }

    /// Copies bytes out of it, if they are there.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let from = self.place(address, bytes.len())?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Some(())
    }
}

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    file: OwnedFd,
    run_size: usize,
}

impl Vm {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self> {
        let kvm = File::options().read(true).write(true).open("/dev/kvm");
        let kvm = kvm
            .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::NODEV))?;
        let file = owned(number(&kvm, abi::plain(abi::CREATE_VM), abi::VM_HV.addr())?);
        let run_size = number(&kvm, abi::plain(abi::VCPU_MMAP_SIZE), 0)? as usize;
        Ok(Vm { file, run_size })
    }

    /// Gives it memory, or pages of a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(&self, slot: u32, guest: u64, mapping: &Mapping) -> Result<()> {
        let user = mapping.start.as_ptr().expose_provenance() as u64;
        let mut region = MemoryRegion { slot, flags: 0, guest, size: mapping.size as u64, user };
        with(&self.file, abi::taking::<MemoryRegion>(abi::SET_MEMORY), &mut region).map(drop)
    }

    /// Lets the kernel answer a hypercall.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable_hcall(&self, number: u64) -> Result<()> {
        enable(&self.file, abi::CAP_ENABLE_HCALL, [number, 1, 0, 0])
    }

    /// Sets the guest's process table.
    ///
    /// # Errors
    /// The kernel's.
    pub fn configure_mmu(&self, mut config: abi::MmuConfig) -> Result<()> {
        with(&self.file, abi::taking::<abi::MmuConfig>(abi::CONFIGURE_MMU), &mut config).map(drop)
    }

    /// Makes each write to an address an event. One of any length, as monitors have it for virtio queues: for these the kernel
    /// does not read the instruction.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tell_event(&self, address: u64, event: &OwnedFd) -> Result<()> {
        let fd = event.as_raw_fd();
        let mut event = abi::IoEvent { value: 0, address, length: 0, fd, flags: 0, pad: [0; 36] };
        with(&self.file, abi::taking::<abi::IoEvent>(abi::IOEVENTFD), &mut event).map(drop)
    }

    /// Makes a vCPU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn vcpu(&self, index: usize) -> Result<VcpuFile> {
        let file = owned(number(&self.file, abi::plain(abi::CREATE_VCPU), index)?);
        enable(&file, abi::CAP_PAPR, [0; 4])?;
        let run = Mapping::of(file.as_fd(), 0, self.run_size)?;
        Ok(VcpuFile { file, run })
    }

    /// Makes an interrupt controller.
    ///
    /// # Errors
    /// The kernel's.
    pub fn device(&self, kind: u32) -> Result<Device> {
        let mut device = CreateDevice { kind, fd: 0, flags: 0 };
        with(&self.file, abi::both::<CreateDevice>(abi::CREATE_DEVICE), &mut device)?;
        Ok(Device { file: owned(device.fd as i32) })
    }
}

/// An interrupt controller.
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
}

impl Device {
    fn attribute<T>(&self, set: bool, group: u32, attr: u64, value: &mut T) -> Result<()> {
        let address = std::ptr::from_mut(value).expose_provenance() as u64;
        let mut attr = DeviceAttr { flags: 0, group, attr, address };
        let call = if set { abi::SET_DEVICE_ATTR } else { abi::GET_DEVICE_ATTR };
        with(&self.file, abi::taking::<DeviceAttr>(call), &mut attr).map(drop)
    }

    /// Changes it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set<T>(&self, group: u32, attr: u64, mut value: T) -> Result<()> {
        self.attribute(true, group, attr, &mut value)
    }

    /// Asks it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn get<T: Default>(&self, group: u32, attr: u64) -> Result<T> {
        let mut value = T::default();
        self.attribute(false, group, attr, &mut value)?;
        Ok(value)
    }

    /// Maps its pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pages(&self, first: u64, count: usize) -> Result<Mapping> {
        let page = rustix::param::page_size();
        Mapping::of(self.file.as_fd(), first * page as u64, count * page)
    }

    /// Gives a vCPU its part of it, by this capability.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(&self, vcpu: &VcpuFile, cap: u32, server: usize) -> Result<()> {
        enable(&vcpu.file, cap, [self.file.as_raw_fd() as u64, server as u64, 0, 0])
    }
}

/// A vCPU.
#[derive(Debug)]
pub struct VcpuFile {
    file: OwnedFd,
    run: Mapping,
}

/// What a vCPU left KVM for.
pub enum Exit<'a> {
    /// A hypercall that the kernel does not answer.
    Hcall(&'a mut abi::Hcall),
    /// An access to where there is no memory.
    Mmio(&'a mut abi::Mmio),
    /// Anything else.
    Other(u32),
}

impl VcpuFile {
    /// Lets the guest run until it has something for this program.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&mut self) -> Result<Exit<'_>> {
        number(&self.file, abi::plain(abi::RUN), 0)?;
        // SAFETY: the kernel has `struct kvm_run` there, and reads and writes it only while it runs this vCPU, which
        // needs `self` again.
        let run = unsafe { self.run.start.cast::<Run>().as_mut() };
        // SAFETY: the reason tells which of them the kernel wrote; all of them are numbers alone.
        Ok(unsafe {
            match run.reason {
                abi::EXIT_HCALL => Exit::Hcall(&mut run.cause.hcall),
                abi::EXIT_MMIO => Exit::Mmio(&mut run.cause.mmio),
                other => Exit::Other(other),
            }
        })
    }

    /// Its registers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn registers(&self) -> Result<Registers> {
        let mut registers = Registers::default();
        with(&self.file, abi::giving::<Registers>(abi::GET_REGS), &mut registers)?;
        Ok(registers)
    }

    /// Sets its registers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_registers(&self, mut registers: Registers) -> Result<()> {
        with(&self.file, abi::taking::<Registers>(abi::SET_REGS), &mut registers).map(drop)
    }

    /// Changes bits of LPCR (Power ISA 3.0B, Book III 2.2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn change_lpcr(&self, mask: u64, bits: u64) -> Result<()> {
        let mut old = 0_u64;
        self.one_register(abi::GET_ONE_REG, &mut old)?;
        self.one_register(abi::SET_ONE_REG, &mut (old & !mask | bits & mask))
    }

    fn one_register(&self, call: u8, value: &mut u64) -> Result<()> {
        let address = std::ptr::from_mut(value).expose_provenance() as u64;
        let mut one = OneReg { id: abi::REG_LPCR, address };
        with(&self.file, abi::taking::<OneReg>(call), &mut one).map(drop)
    }
}
