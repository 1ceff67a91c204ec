// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's device that the service drives: its registers, a copy of its configuration space, and memory that both reach.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turnstile_service::abi::{DEVICE_CONFIGURATION, DEVICE_MEMORY};
use turnstile_virtio::driver::pci::Function;
use turnstile_virtio::memory::{Memory, Outside};

use crate::access;
use crate::memory::{self, GuestMemory};

/// The parts that are registers, or like them.
const PARTS: usize = DEVICE_MEMORY as usize;

/// A part: its size, zero while there is none, and its address here.
struct Part {
    size: AtomicU64,
    address: AtomicU64,
}

/// Written before the first event that programs see, and read after that.
static DEVICE: [Part; PARTS] =
    [const { Part { size: AtomicU64::new(0), address: AtomicU64::new(0) } }; PARTS];

/// Whether it is to reach memory by an IOMMU alone.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// Takes note of that.
pub(crate) fn guard(guarded: bool) {
    GUARDED.store(guarded, Ordering::Relaxed);
}

/// Takes note of a part: which, its size, its address here, its address for the device.
pub(crate) fn attach([part, size, address, bus]: [u64; 4]) {
    if part == DEVICE_MEMORY {
        return memory::attach_device([bus, size, address]);
    }
    let Some(part) = DEVICE.get(part as usize) else { return };
    part.address.store(address, Ordering::Relaxed);
    part.size.store(size, Ordering::Relaxed);
}

/// The device that the hypervisor has given this service.
#[derive(Clone, Copy, Debug)]
pub struct Device(());

impl Device {
    /// The device. Without one it has no registers and no memory.
    pub const fn own() -> Self {
        Self(())
    }

    /// The registers behind a BAR. `None` if there is no such BAR, or none of memory.
    pub fn registers(self, bar: u8) -> Option<Registers> {
        if u64::from(bar) < DEVICE_CONFIGURATION { Registers::of(bar.into()) } else { None }
    }

    /// Its configuration space as the hypervisor has set it up: a copy that stays as it is. `None` without a device.
    pub fn configuration(self) -> Option<Registers> {
        Registers::of(DEVICE_CONFIGURATION as usize)
    }

    /// The memory that the device reaches.
    pub const fn memory(self) -> DeviceMemory {
        DeviceMemory(GuestMemory::of_device())
    }
}

impl Function for Device {
    #[inline(never)] // Many, once.
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        Registers::of(DEVICE_CONFIGURATION as usize)
            .and_then(|registers| registers.read(offset.into(), size))
            .map_or(u32::MAX, |value| value as u32)
    }

    fn length(&self, bar: u8) -> u64 {
        self.registers(bar).map_or(0, Registers::size)
    }

    #[inline(never)] // A register takes longer than a call.
    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        self.registers(bar)
            .and_then(|registers| registers.read(offset, size))
            .map_or(u32::MAX, |value| value as u32)
    }

    #[inline(never)] // As above.
    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        // What is not there is written to in vain.
        let _ = self.registers(bar).is_some_and(|registers| registers.write(offset, size, value.into()));
    }

    fn is_guarded(&self) -> bool {
        GUARDED.load(Ordering::Relaxed)
    }
}

/// Registers.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    address: u64,
    size: u64,
}

impl Registers {
    fn of(part: usize) -> Option<Self> {
        let part = DEVICE.get(part)?;
        let (address, size) = (part.address.load(Ordering::Relaxed), part.size.load(Ordering::Relaxed));
        (size != 0).then_some(Self { address, size })
    }

    /// How many bytes there are.
    pub const fn size(self) -> u64 {
        self.size
    }

    /// Returns where they are, if there are as many at this offset and if it is a multiple of their number.
    const fn find(self, offset: u64, size: u8) -> Option<u64> {
        let is_sized = matches!(size, 1 | 2 | 4 | 8);
        let is_within = offset < self.size && size as u64 <= self.size - offset;
        if is_sized && is_within && offset & (size as u64 - 1) == 0 {
            Some(self.address + offset)
        } else {
            None
        }
    }

    /// Reads 1, 2, 4 or 8 bytes at an offset that is a multiple of that, by one instruction. What the program then reads of memory is as the
    /// device had written it when it answered. `None` if they are not all there.
    pub fn read(self, offset: u64, size: u8) -> Option<u64> {
        let at = self.find(offset, size)?;
        // SAFETY: found above: mapped while the service runs, readable, aligned; nobody has references to it.
        Some(unsafe { access::read(at as usize, size) })
    }

    /// Writes as many, by one instruction. The device sees in memory what the program has written before. False if they are not all there.
    pub fn write(self, offset: u64, size: u8, value: u64) -> bool {
        let Some(at) = self.find(offset, size) else { return false };
        // SAFETY: as for reading. Registers can be written; nobody is given those of the configuration's copy to write, and a write there ends the
        // program, as any outside of its memory.
        unsafe { access::write(at as usize, size, value) };
        true
    }
}

/// The memory that the device reaches, by its addresses, ordered as the device and the service need it ([`Memory`]). The service has no other
/// way to it but [`GuestMemory::of_device`], for what it does there itself.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory(GuestMemory);

impl DeviceMemory {
    /// Returns the first address, and how many bytes there are; none without a device.
    pub fn range(self) -> (u64, u64) {
        self.0.first()
    }
}

impl Memory for DeviceMemory {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.0.contains(address, length)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        let value = self.0.load(address)?;
        access::behind_load();
        Ok(value)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        access::before_store();
        self.0.store(address, value)
    }

    fn read_u16(&self, address: u64) -> Result<u16, Outside> {
        self.0.read_u16(address)
    }

    fn read_words(&self, address: u64) -> Result<[u64; 2], Outside> {
        self.0.read_words(address)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        self.0.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        self.0.write(address, bytes)
    }

    fn fence(&self) {
        access::fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all programs of a process have the same device.
    #[test]
    fn only_what_is_the_devices_is_reached() {
        let device = Device::own();
        assert!(device.registers(0).is_none() && device.configuration().is_none(), "nothing is attached");
        assert_eq!(device.memory().range(), (0, 0));
        let words: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; 4]));
        let here = words.as_ptr().expose_provenance() as u64;
        attach([2, 12, here, 0]);
        attach([DEVICE_CONFIGURATION, 8, here, 0]);
        attach([u64::MAX, 8, here, 0]);
        attach([DEVICE_MEMORY, 8, here + 16, 0x8000_0000]);

        let registers = device.registers(2).unwrap();
        assert!(registers.write(0, 8, 0x1122_3344_5566_7788) && registers.write(8, 4, u64::MAX));
        assert_eq!(
            [1, 2, 4, 8].map(|size| registers.read(0, size)),
            [Some(0x88), Some(0x7788), Some(0x5566_7788), Some(0x1122_3344_5566_7788)]
        );
        assert_eq!(words[1].load(Ordering::Relaxed), 0xffff_ffff, "no more than it says");
        assert!(registers.write(11, 1, 0) && registers.write(2, 2, 0x1_5aa5));
        assert_eq!(registers.read(8, 4), Some(0xff_ffff));
        assert_eq!(words[0].load(Ordering::Relaxed), 0x1122_3344_5aa5_7788);
        for (offset, size) in
            [(8, 8), (12, 1), (1, 2), (2, 4), (0, 0), (0, 3), (0, 16), (u64::MAX, 1), (10, 4)]
        {
            assert_eq!(registers.read(offset, size), None, "{size} bytes at {offset:#x}");
            assert!(!registers.write(offset, size, 0));
        }
        assert_eq!(device.configuration().map(Registers::size), Some(8));
        assert!(
            device.registers(0).is_none() && device.registers(6).is_none() && device.registers(7).is_none()
        );

        Function::write(&device, 2, 8, 4, 7);
        Function::write(&device, 2, 10, 4, 9);
        assert_eq!((Function::read(&device, 2, 8, 4), Function::read(&device, 2, 12, 4)), (7, u32::MAX));
        assert_eq!((device.length(2), device.length(3)), (12, 0));
        assert_eq!(
            (Function::configuration(&device, 2, 2), Function::configuration(&device, 8, 1)),
            (0x5aa5, u32::MAX)
        );

        let memory = device.memory();
        assert_eq!(memory.range(), (0x8000_0000, 8));
        memory.store(0x8000_0002, 0x1234).unwrap();
        memory.fence();
        assert_eq!((memory.load(0x8000_0002), memory.read_u16(0x8000_0002)), (Ok(0x1234), Ok(0x1234)));
        assert_eq!(words[2].load(Ordering::Relaxed), 0x1234_0000);
        assert!(GuestMemory::of_device().contains(0x8000_0000, 8) && !memory.contains(0x8000_0001, 8));
    }
}
