// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides of a virtio queue in memory that holds anything, and that changes between any two reads.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use turnstile_virtio::{device, driver};

const SIZE: u16 = 8;
const LENGTH: usize = 0x400;
/// How many descriptors the device accepts.
const LONGEST: u32 = 16;

/// Memory at address 0, and what is written there by somebody else, one place behind each read.
struct Ram {
    bytes: RefCell<Vec<u8>>,
    changes: RefCell<Vec<(u16, u8)>>,
}

impl Ram {
    fn change(&self) {
        if let Some((at, byte)) = self.changes.borrow_mut().pop() {
            self.bytes.borrow_mut()[usize::from(at) % LENGTH] = byte;
        }
    }
}

impl Memory for Ram {
    fn contains(&self, address: u64, length: u64) -> bool {
        length == 0 || address.checked_add(length).is_some_and(|end| end <= LENGTH as u64)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.read_u16(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.write(address, &value.to_le_bytes())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        if !self.contains(address, bytes.len() as u64) {
            return Err(Outside { address });
        }
        bytes.copy_from_slice(&self.bytes.borrow()[address as usize..][..bytes.len()]);
        self.change();
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        if !self.contains(address, bytes.len() as u64) {
            return Err(Outside { address });
        }
        self.bytes.borrow_mut()[address as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn fence(&self) {}
}

fuzz_target!(|input: (u8, Vec<u8>, Vec<(u16, u8)>, &[u8])| {
    let (options, mut bytes, changes, steps) = input;
    bytes.resize(LENGTH, 0);
    let options = Options { indirect: options & 1 != 0, event_idx: options & 2 != 0 };
    let ram = Ram { bytes: RefCell::new(bytes), changes: RefCell::new(changes) };
    let areas = Areas { descriptors: 0, driver: 0x80, device: 0x98 };
    let layout = Layout::new(&ram, SIZE, areas).expect("it is memory");
    let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).expect("it fits");
    let mut device = device::Queue::new(layout, options, LONGEST);
    let mut tokens = Vec::new();
    for &step in steps {
        let argument = u32::from(step >> 3);
        match step % 8 {
            0 => {
                let buffer = |writable| Buffer { address: 0x200, length: argument, writable };
                let _ = driver.add(&ram, &[buffer(false), buffer(true)]);
                let _ = driver.add_indirect(&ram, 0x300, &[buffer(false), buffer(true)]);
            }
            1 => drop(driver.publish(&ram)),
            2 => drop(driver.take(&ram)),
            3 => drop((driver.arm(&ram), driver.suppress(&ram))),
            4 => {
                let Ok(Some(mut chain)) = device.pop(&ram) else { continue };
                let mut count = 0;
                while let Ok(Some(buffer)) = chain.next(&ram) {
                    assert!(ram.contains(buffer.address, buffer.length.into()));
                    count += 1;
                }
                assert!(count <= LONGEST);
                tokens.push(chain.finish());
            }
            5 => {
                let Ok(Some(chain)) = device.pop(&ram) else { continue };
                let mut cursor = device::Cursor::new(chain);
                let mut bytes = [0; 32];
                let _ = cursor.read(&ram, &mut bytes).and_then(|_| cursor.write(&ram, &bytes));
                tokens.push(cursor.finish());
            }
            6 => {
                let Some(token) = tokens.pop() else { continue };
                device.complete(&ram, token, argument).expect("the ring is memory");
                let _ = device.publish(&ram);
            }
            _ if argument == 0 => device.renew(layout, options),
            _ => drop((device.arm(&ram), device.suppress(&ram))),
        }
        assert!(device.in_flight() <= SIZE && driver.in_flight() <= SIZE && driver.free() <= SIZE);
    }
});
