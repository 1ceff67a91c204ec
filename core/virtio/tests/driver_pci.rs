// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of PCI against the device's.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use common::disk::{Disk, OFFERED, disk, function};
use common::{BASE, Ram, Random, areas};
use turnstile_pci::function::Function;
use turnstile_virtio::config::Block;
use turnstile_virtio::device;
use turnstile_virtio::driver::pci::{self, Device, Failure};
use turnstile_virtio::driver::{Queue, Used};
use turnstile_virtio::features::Features;
use turnstile_virtio::pci::{BAR_VIRTIO, Outcome};
use turnstile_virtio::registers::{Effect, Isr};
use turnstile_virtio::ring::{Buffer, Layout, Options};

/// The disk where a driver reaches it.
struct Slot {
    disk: RefCell<Disk>,
    function: RefCell<Function>,
    /// What the configuration space has instead.
    patches: BTreeMap<u16, u8>,
    /// How often the status is read until a reset has ended.
    slow: Cell<u32>,
    /// Whether an IOMMU is to guard it, and whether it offers that.
    guarded: [bool; 2],
    effects: RefCell<Vec<Effect>>,
}

/// VIRTIO_F_ACCESS_PLATFORM, in the upper word of the features.
const PLATFORM: u32 = 1 << 1;

const LENGTHS: [u64; 6] = [0, 0x1000, 0, 0, 0x4000, 0];

impl Slot {
    fn new(msix: bool) -> Self {
        let mut function = function();
        let at = capabilities(&function).into_iter().find(|(id, ..)| *id == 0x11).unwrap().1;
        let _ = function.write(at + 2, 2, if msix { 0x8000 } else { 0 });
        Self {
            disk: disk().into(),
            function: function.into(),
            patches: BTreeMap::new(),
            slow: Cell::new(0),
            guarded: [false; 2],
            effects: RefCell::default(),
        }
    }

    fn patched(patches: &[(u16, u8)]) -> Result<Device, Failure> {
        Device::find(&Self { patches: patches.iter().copied().collect(), ..Self::new(true) })
    }
}

/// The capabilities: identity, place, and of virtio's the type.
fn capabilities(function: &Function) -> Vec<(u32, u16, u32)> {
    let mut all = Vec::new();
    let mut at = function.read(0x34, 1) as u16;
    while at != 0 {
        all.push((function.read(at, 1), at, function.read(at + 3, 1)));
        at = function.read(at + 1, 1) as u16;
    }
    all
}

/// Where the capability of a structure is.
fn capability(kind: u32) -> u16 {
    capabilities(&function()).into_iter().find(|(id, _, of)| (*id, *of) == (9, kind)).unwrap().1
}

impl pci::Function for Slot {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        let byte = |at| {
            self.patches.get(&at).map_or_else(|| self.function.borrow().read(at, 1), |&byte| byte.into())
        };
        (0..u16::from(size)).rev().fold(0, |value, at| value << 8 | byte(offset + at))
    }

    fn length(&self, bar: u8) -> u64 {
        LENGTHS[usize::from(bar)]
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        assert!(offset + u64::from(size) <= LENGTHS[usize::from(bar)] && offset.is_multiple_of(size.into()));
        if (bar, offset) == (BAR_VIRTIO, 0x14) && self.slow.get() != 0 {
            self.slow.update(|slow| slow - 1);
            return 0x4f;
        }
        let value = self.disk.borrow_mut().read(bar, offset, size) as u32;
        let is_upper = (bar, offset) == (BAR_VIRTIO, 0x04) && self.read(bar, 0, 4) == 1;
        if is_upper && self.guarded[1] { value | PLATFORM } else { value }
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        assert!(offset + u64::from(size) <= LENGTHS[usize::from(bar)] && offset.is_multiple_of(size.into()));
        let is_upper = (bar, offset) == (BAR_VIRTIO, 0x0c) && self.read(bar, 0x08, 4) == 1;
        let value = if is_upper && self.guarded[1] { value & !PLATFORM } else { value };
        let control = self.function.borrow().msix();
        let Outcome { effect, .. } = self.disk.borrow_mut().write(control, bar, offset, size, value.into());
        self.effects.borrow_mut().extend(effect);
    }

    fn is_guarded(&self) -> bool {
        self.guarded[0]
    }
}

#[test]
fn a_device_that_an_iommu_is_to_guard_must_offer_that() {
    let begin = |guarded| {
        let slot = Slot { guarded, ..Slot::new(true) };
        let begun = Device::find(&slot).unwrap().begin(&slot, Features::empty());
        (begun, pci::Function::read(&slot, BAR_VIRTIO, 0x14, 1) & 0x80 != 0)
    };
    let plain = Features::VERSION_1;
    assert_eq!(begin([true, false]), (Err(Failure::Unguarded), true), "and the device is told");
    assert_eq!(begin([true, true]), (Ok(plain | Features::ACCESS_PLATFORM), false));
    assert_eq!(begin([false, true]), (Ok(plain | Features::ACCESS_PLATFORM), false));
    assert_eq!(begin([false, false]), (Ok(plain), false));
}

#[test]
fn a_driver_begins_and_its_queue_works() {
    for msix in [true, false] {
        let (slot, ram) = (Slot::new(msix), Ram::new(0x1_0000));
        slot.slow.set(1000);
        let device = Device::find(&slot).unwrap();
        let wanted = Features::EVENT_IDX | Block::FLUSH | Features::RING_PACKED;
        let features = device.begin(&slot, wanted).unwrap();
        assert_eq!(features, Features::EVENT_IDX | Block::FLUSH | Features::VERSION_1, "what both want");
        assert_eq!(device.config(&slot), Some(0x1234_5678_9abc_u64.to_le_bytes()));
        assert_eq!(device.config::<_, 0x1001>(&slot), None, "it has not as many");
        assert_eq!((device.size(&slot, 0, 100), device.size(&slot, 1, 100)), (Ok(64), Ok(64)));
        assert_eq!(device.size(&slot, 2, 100), Err(Failure::Queue(2)), "there is no such queue");
        let layout = Layout::new(&ram, 64, areas(64).0).unwrap();
        let mut queue: Queue<64> = Queue::nowhere();
        queue.begin(&ram, layout, Options::from(features)).unwrap();
        let bell = device.set_up(&slot, 1, &layout).unwrap();
        assert!(device.check(&slot) == Err(Failure::Broken) && device.start(&slot).is_ok());
        assert_eq!(device.check(&slot), Ok(()));
        device.notify(&slot, bell);
        let effects = slot.effects.take();
        assert_eq!(effects, [Effect::Reset, Effect::Enabled(1), Effect::Started, Effect::Notified(1)]);

        let (found, vector) = {
            let disk = slot.disk.borrow();
            let queue = disk.registers.queue(1).unwrap();
            (queue.layout(&ram).unwrap(), (queue.vector(), disk.registers.config_vector()))
        };
        assert_eq!((found, vector), (layout, if msix { (0, 0) } else { (0xffff, 0xffff) }));
        let id = queue.add(&ram, &[Buffer { address: BASE + 0x8000, length: 4, writable: true }]).unwrap();
        assert!(queue.publish(&ram).unwrap());
        let mut other = device::Queue::new(found, Options::from(features), 4);
        let mut cursor = device::Cursor::new(other.pop(&ram).unwrap().unwrap());
        assert_eq!(cursor.write(&ram, b"four"), Ok(4));
        other.complete(&ram, cursor.finish(), 4).unwrap();
        assert!(other.publish(&ram).unwrap());
        assert_eq!(queue.take(&ram), Ok(Some(Used { id, written: 4 })));

        let control = slot.function.borrow().msix();
        let _ = slot.disk.borrow_mut().raise_queue(control, 1);
        assert_eq!(device.reasons(&slot), if msix { Isr::all() } else { Isr::QUEUE });
        assert_eq!(device.reasons(&slot), if msix { Isr::all() } else { Isr::empty() }, "reading clears it");
        let _ = slot.disk.borrow_mut().fail(control);
        assert_eq!(device.check(&slot), Err(Failure::Broken));
        device.reset(&slot).unwrap();
        assert!(slot.disk.borrow().registers.queue(1).is_some_and(|queue| !queue.is_enabled()));
    }
}

/// A queue that is nowhere takes nothing, and one that begins anew knows nothing of before.
#[test]
fn a_queue_begins_anew() {
    let ram = Ram::new(0x1_0000);
    let buffer = [Buffer { address: BASE + 0x8000, length: 4, writable: true }];
    let mut queue: Queue<16> = Queue::nowhere();
    assert_eq!((queue.free(), queue.add(&ram, &buffer)), (0, Err(turnstile_virtio::driver::Refusal::Full)));
    let layout = |size| Layout::new(&ram, size, areas(size).0).unwrap();
    assert!(queue.begin(&ram, layout(32), Options::default()).is_err() && queue.free() == 0, "too many");
    for size in [16, 8] {
        queue.begin(&ram, layout(size), Options::default()).unwrap();
        assert_eq!((queue.free(), queue.in_flight()), (size, 0));
        for _ in 0..size {
            queue.add(&ram, &buffer).unwrap();
        }
        assert!(queue.publish(&ram).unwrap() && queue.free() == 0);
    }
}

#[test]
fn a_reset_that_takes_no_end_is_given_up() {
    let slot = Slot::new(true);
    let device = Device::find(&slot).unwrap();
    slot.slow.set(u32::MAX);
    assert_eq!(device.begin(&slot, Features::empty()), Err(Failure::Reset));
    assert!(slot.slow.get() > u32::MAX - 100_000, "soon");
}

#[test]
fn features_that_are_not_offered_are_not_accepted() {
    let slot = Slot::new(true);
    let device = Device::find(&slot).unwrap();
    assert_eq!(
        device.begin(&slot, Features::all()),
        Ok(OFFERED | Block::FLUSH | Block::CONFIG_WCE | Features::VERSION_1)
    );
    let disk = slot.disk.borrow();
    assert!(disk.registers.features().contains(Features::RING_RESET));
}

#[test]
fn structures_are_within_their_bars() {
    assert!(Slot::patched(&[]).is_ok());
    let refused = |kind, field, byte| {
        let refused = Slot::patched(&[(capability(kind) + field, byte)]).map(drop);
        assert_eq!(refused, Err(Failure::Structures), "structure {kind}, field {field}: {byte:#x}");
    };
    for kind in [1, 2, 3] {
        // The BAR, its offset, its length, and the type.
        refused(kind, 4, 0);
        refused(kind, 4, 6);
        refused(kind, 4, 0xff);
        refused(kind, 9, 0x40);
        refused(kind, 11, 0xff);
        refused(kind, 15, 0xff);
        refused(kind, 12, 0);
        refused(kind, 3, 9);
    }
    refused(1, 8, 2);
    refused(1, 12, 0x34);
    refused(2, 8, 1);
    refused(2, 16, 3);
    assert!(Slot::patched(&[(capability(4) + 4, 9)]).is_ok(), "not all devices have a configuration");
    assert_eq!(Slot::patched(&[(6, 0)]).map(drop), Err(Failure::Structures), "there is no list");
    assert_eq!(
        Slot::patched(&[(0x34, 0x10)]).map(drop),
        Err(Failure::Structures),
        "the list is in the header"
    );
    let first = function().read(0x34, 1) as u16;
    assert_eq!(
        Slot::patched(&[(first + 1, first as u8)]).map(drop),
        Err(Failure::Structures),
        "it has a loop"
    );
}

/// The first one that can be used (section 4.1.4.1).
#[test]
fn a_structure_may_be_there_twice() {
    let [common, isr] = [capability(1), capability(3)];
    // The second of two is of no use, whatever it says.
    assert!(Slot::patched(&[(capability(4) + 3, 1), (capability(4) + 9, 0x3f)]).is_ok());
    // The first of two is not there.
    let copy: Vec<_> =
        (4..16).map(|at| (capability(4) + at, function().read(common + at, 1) as u8)).collect();
    let patches = [&copy[..], &[(capability(4) + 3, 1), (common + 4, 7)]].concat();
    assert!(common < isr && Slot::patched(&patches).is_ok());
}

#[test]
fn any_configuration_space_is_borne() {
    let mut random = Random(0x1_2345);
    for _ in 0..20_000 {
        let mut slot = Slot::new(random.below(2) == 0);
        for _ in 0..1 + random.below(8) {
            slot.patches.insert(0x34 + random.below(0xcc) as u16, (random.next() >> 20) as u8);
        }
        let Ok(device) = Device::find(&slot) else { continue };
        let _ = device.begin(&slot, Features::EVENT_IDX);
        let ram = Ram::new(0x1000);
        let layout = Layout::new(&ram, 16, areas(16).0).unwrap();
        let bell = device.size(&slot, 0, 16).and_then(|_| device.set_up(&slot, 0, &layout));
        if let Ok(bell) = bell {
            device.notify(&slot, bell);
        }
        let _: (_, Option<[u8; 8]>) = (device.reasons(&slot), device.config(&slot));
    }
}
