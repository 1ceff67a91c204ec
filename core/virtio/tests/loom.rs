// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides of a queue at once, under all interleavings. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-virtio --release --test loom`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, Ordering, fence};
use loom::thread;
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use turnstile_virtio::{device, driver};

const SIZE: u16 = 2;
/// One buffer's address.
const DATA: u64 = 80;

/// Memory at address 0, as the model checker sees it.
struct Shared(Vec<AtomicU16>);

impl Shared {
    fn cell(&self, address: u64) -> Result<&AtomicU16, Outside> {
        self.0.get(address as usize / 2).filter(|_| address % 2 == 0).ok_or(Outside { address })
    }
}

impl Memory for Shared {
    fn contains(&self, address: u64, length: u64) -> bool {
        address.checked_add(length).is_some_and(|end| end <= 2 * self.0.len() as u64)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        Ok(self.cell(address)?.load(Ordering::Acquire))
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.cell(address)?.store(value, Ordering::Release);
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        for (at, pair) in (address..).step_by(2).zip(bytes.chunks_mut(2)) {
            pair.copy_from_slice(&self.cell(at)?.load(Ordering::Relaxed).to_le_bytes());
        }
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        for (at, pair) in (address..).step_by(2).zip(bytes.chunks(2)) {
            self.cell(at)?.store(u16::from_le_bytes(pair.try_into().unwrap()), Ordering::Relaxed);
        }
        Ok(())
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

type Driver = driver::Queue<2>;

/// A queue through which one chain went there and back already, so that first wishes have been fulfilled.
fn queue(event_idx: bool) -> (Arc<Shared>, Driver, device::Queue) {
    let memory = Arc::new(Shared((0..48).map(|_| AtomicU16::new(0)).collect()));
    let areas = Areas { descriptors: 0, driver: 32, device: 44 };
    let layout = Layout::new(&*memory, SIZE, areas).unwrap();
    let options = Options { indirect: false, event_idx };
    let mut driver = Driver::new(&*memory, layout, options).unwrap();
    let mut device = device::Queue::new(layout, options, 2);
    offer(&memory, &mut driver);
    give_back(&memory, &mut device);
    assert!(driver.take(&*memory).unwrap().is_some());
    device.suppress(&*memory).unwrap();
    driver.suppress(&*memory).unwrap();
    (memory, driver, device)
}

/// Offers a buffer; returns whether the device must be notified.
fn offer(memory: &Shared, driver: &mut Driver) -> bool {
    driver.add(memory, &[Buffer { address: DATA, length: 2, writable: true }]).unwrap();
    driver.publish(memory).unwrap()
}

/// Takes a buffer and returns it; returns whether the driver must be interrupted.
fn give_back(memory: &Shared, device: &mut device::Queue) -> bool {
    let chain = device.pop(memory).unwrap().unwrap();
    device.complete(memory, chain.finish(), 2).unwrap();
    device.publish(memory).unwrap()
}

/// A device arms while the driver offers: it sees the chain, or is notified.
#[test]
fn no_notification_is_lost() {
    for event_idx in [false, true] {
        loom::model(move || {
            let (memory, mut driver, mut device) = queue(event_idx);
            let shared = memory.clone();
            let offers = thread::spawn(move || offer(&shared, &mut driver));
            let more = device.arm(&*memory).unwrap();
            assert_eq!(device.pop(&*memory).unwrap().is_some() || offers.join().unwrap(), true);
            assert!(!more || device.in_flight() == 1, "what arming has seen is there");
        });
    }
}

/// A driver arms while the device returns: it sees the chain, or is interrupted.
#[test]
fn no_interrupt_is_lost() {
    for event_idx in [false, true] {
        loom::model(move || {
            let (memory, mut driver, mut device) = queue(event_idx);
            offer(&memory, &mut driver);
            let shared = memory.clone();
            let returns = thread::spawn(move || give_back(&shared, &mut device));
            let more = driver.arm(&*memory).unwrap();
            assert_eq!(driver.take(&*memory).unwrap().is_some() || returns.join().unwrap(), true);
            assert!(!more || driver.in_flight() == 0, "what arming has seen is there");
        });
    }
}

/// Whoever sees an index sees what stands before it: descriptors, entries and data.
#[test]
fn what_an_index_shows_is_there() {
    loom::model(|| {
        let (memory, mut driver, mut device) = queue(true);
        let shared = memory.clone();
        let device_side = thread::spawn(move || {
            let Some(mut chain) = device.pop(&*shared).unwrap() else { return };
            let buffer = chain.next(&*shared).unwrap().unwrap();
            assert_eq!(buffer, Buffer { address: DATA, length: 2, writable: true });
            assert_eq!(shared.read_u16(DATA), Ok(0x1111));
            shared.write(DATA, &[0x22, 0x22]).unwrap();
            device.complete(&*shared, chain.finish(), 2).unwrap();
            device.publish(&*shared).unwrap();
        });
        memory.write(DATA, &[0x11, 0x11]).unwrap();
        offer(&memory, &mut driver);
        if let Some(used) = driver.take(&*memory).unwrap() {
            assert_eq!(used.written, 2);
            assert_eq!(memory.read_u16(DATA), Ok(0x2222));
        }
        device_side.join().unwrap();
    });
}
