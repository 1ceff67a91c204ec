// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides of a queue against a model that knows no rings: lists of chains, and who has asked for what.

mod common;

use common::model::{Chain, Model, Wish};
use common::{Ram, Random, areas};
use proptest::prelude::*;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Buffer, Layout, Options};
use turnstile_virtio::{device, driver};

const SIZE: u16 = 8;

#[derive(Clone, Copy, Debug)]
enum Step {
    Add { readable: u8, writable: u8, indirect: bool },
    DriverPublish,
    Pop,
    Complete(u8),
    DevicePublish,
    Take,
    DriverArm(bool),
    DeviceArm(bool),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..4, 0u8..4, any::<bool>())
            .prop_map(|(readable, writable, indirect)| Step::Add { readable, writable, indirect }),
        4 => Just(Step::DriverPublish),
        6 => Just(Step::Pop),
        6 => any::<u8>().prop_map(Step::Complete),
        4 => Just(Step::DevicePublish),
        6 => Just(Step::Take),
        2 => any::<bool>().prop_map(Step::DriverArm),
        2 => any::<bool>().prop_map(Step::DeviceArm),
        1 => Just(Step::Reset),
    ]
}

struct Test {
    ram: Ram,
    options: Options,
    layout: Layout,
    driver: driver::Queue<16>,
    device: device::Queue,
    tokens: Vec<device::Token>,
    model: Model,
    /// Tables of indirect chains, and data.
    heap: u64,
    serial: u64,
}

impl Test {
    fn new(options: Options) -> Self {
        let ram = Ram::new(0x4000);
        let (areas, heap) = areas(SIZE);
        let layout = Layout::new(&ram, SIZE, areas).unwrap();
        let driver = driver::Queue::new(&ram, layout, options).unwrap();
        let device = device::Queue::new(layout, options, 64);
        let tokens = Vec::new();
        Self { ram, options, layout, driver, device, tokens, model: Model::new(options), heap, serial: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add { readable, writable, indirect } => self.add(readable, writable, indirect),
            Step::DriverPublish => {
                let new = self.model.added.len() as u64;
                let old = self.model.available_count;
                self.model.available_count += new;
                let all = self.model.added.drain(..);
                self.model.available.extend(all);
                let expected = self.model.of_device.hears(old, old + new);
                assert_eq!(self.driver.publish(&self.ram), Ok(expected));
            }
            Step::Pop => self.pop(),
            Step::Complete(which) => {
                if !self.tokens.is_empty() {
                    let which = usize::from(which) % self.tokens.len();
                    let chain = self.model.with_device.remove(which);
                    let room: u32 = chain
                        .buffers
                        .iter()
                        .filter(|buffer| buffer.writable)
                        .map(|buffer| buffer.length)
                        .sum();
                    self.model.used.push_back((chain.id, room / 2));
                    self.model.completed += 1;
                    self.device.complete(&self.ram, self.tokens.remove(which), room / 2).unwrap();
                }
            }
            Step::DevicePublish => {
                let (old, new) = (self.model.used_count, std::mem::take(&mut self.model.completed));
                self.model.used_count += new;
                assert_eq!(self.device.publish(&self.ram), Ok(self.model.of_driver.hears(old, old + new)));
            }
            Step::Take => {
                let taken = self.driver.take(&self.ram).unwrap();
                let expected = self.model.used.pop_front();
                self.model.taken_count += u64::from(expected.is_some());
                assert_eq!(taken.map(|used| (used.id, used.written)), expected);
            }
            Step::DriverArm(on) => {
                if on {
                    assert_eq!(self.driver.arm(&self.ram), Ok(!self.model.used.is_empty()));
                } else {
                    self.driver.suppress(&self.ram).unwrap();
                }
                self.model.of_driver = self.wish(on, self.model.of_driver, self.model.taken_count);
            }
            Step::DeviceArm(on) => {
                if on {
                    assert_eq!(self.device.arm(&self.ram), Ok(!self.model.available.is_empty()));
                } else {
                    self.device.suppress(&self.ram).unwrap();
                }
                self.model.of_device = self.wish(on, self.model.of_device, self.model.popped_count);
            }
            Step::Reset => self.reset(),
        }
    }

    fn wish(&self, on: bool, before: Wish, next: u64) -> Wish {
        match (self.options.event_idx, on) {
            (false, _) => Wish::All(on),
            (true, true) => Wish::Entry(next),
            (true, false) => before,
        }
    }

    fn add(&mut self, readable: u8, writable: u8, indirect: bool) {
        let count = readable + writable;
        let buffers: Vec<Buffer> = (0..count)
            .map(|index| {
                self.serial += 1;
                let length = (self.serial % 7) as u32 * 16;
                Buffer {
                    address: self.heap + 0x1000 + self.serial % 0x1000,
                    length,
                    writable: index >= readable,
                }
            })
            .collect();
        let free = self.driver.free();
        let added = match indirect {
            // A table for each descriptor.
            true => {
                let table = self.heap + u64::from(self.serial as u16 % 16) * 0x80;
                let busy = self.tables_in_use(table);
                if busy {
                    return;
                }
                self.driver.add_indirect(&self.ram, table, &buffers)
            }
            false => self.driver.add(&self.ram, &buffers),
        };
        let needed = if indirect { 1 } else { u16::from(count) };
        match added {
            Ok(id) => {
                assert!(self.model.added.iter().all(|chain| chain.id != id), "an identifier is given once");
                assert_eq!(self.driver.free(), free - needed);
                self.model.added.push_back(Chain { id, buffers });
            }
            Err(driver::Refusal::Empty) => assert_eq!(count, 0),
            Err(driver::Refusal::Full) => assert!(free < needed),
            Err(driver::Refusal::Indirect) => assert!(indirect && !self.options.indirect),
            Err(other) => panic!("{other}"),
        }
    }

    /// Whether a table may still be read by the device: any chain that it has not completed.
    fn tables_in_use(&self, table: u64) -> bool {
        let heads = 0..SIZE;
        heads
            .map(|head| self.layout.areas().descriptors + 16 * u64::from(head))
            .any(|at| u64::from_le_bytes(self.ram.get(at)) == table && self.driver.in_flight() > 0)
    }

    fn pop(&mut self) {
        let expected = self.model.available.pop_front();
        let Some(mut chain) = self.device.pop(&self.ram).unwrap() else {
            assert!(expected.is_none());
            return;
        };
        let expected = expected.expect("nothing that was not offered");
        let mut buffers = Vec::new();
        while let Some(buffer) = chain.next(&self.ram).unwrap() {
            buffers.push(buffer);
        }
        assert_eq!(buffers, expected.buffers);
        self.model.popped_count += 1;
        self.model.with_device.push(expected);
        self.tokens.push(chain.finish());
    }

    /// The queue is reset in the middle of everything; what the device still has of before is worth nothing.
    fn reset(&mut self) {
        self.driver = driver::Queue::new(&self.ram, self.layout, self.options).unwrap();
        self.device.renew(self.layout, self.options);
        self.model = Model::new(self.options);
        for token in self.tokens.drain(..) {
            self.device.complete(&self.ram, token, 1).unwrap();
        }
        assert_eq!((self.device.in_flight(), self.driver.in_flight()), (0, 0));
        assert_eq!(self.device.publish(&self.ram), Ok(false));
    }
}

proptest! {
    /// Whatever the order of steps: each chain comes to the device once, in the order of publishing, with the driver's buffers, and
    /// back once, in the order of completion; and each side hears exactly of what it has asked for.
    #[test]
    fn each_chain_goes_there_and_back_once(
        indirect: bool, event_idx: bool, steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut test = Test::new(Options { indirect, event_idx });
        for step in steps {
            test.step(step);
        }
    }
}

#[test]
fn indexes_wrap() {
    for event_idx in [false, true] {
        let mut test = Test::new(Options { indirect: true, event_idx });
        let mut random = Random(0x7669_7274_696f_3132);
        while test.model.taken_count < 70_000 {
            let step = match random.below(16) {
                0..4 => {
                    Step::Add { readable: 1, writable: random.below(3) as u8, indirect: random.below(2) == 0 }
                }
                4..6 => Step::DriverPublish,
                6..9 => Step::Pop,
                9..12 => Step::Complete(random.next() as u8),
                12 => Step::DevicePublish,
                13 => {
                    if random.below(2) == 0 {
                        Step::DriverArm(true)
                    } else {
                        Step::DeviceArm(true)
                    }
                }
                _ => Step::Take,
            };
            test.step(step);
        }
    }
}

#[test]
fn the_driver_offers_only_what_it_may() {
    let ram = Ram::new(0x4000);
    let (areas, heap) = areas(SIZE);
    let layout = Layout::new(&ram, SIZE, areas).unwrap();
    let options = Options { indirect: true, event_idx: false };
    assert!(driver::Queue::<4>::new(&ram, layout, options).is_err(), "there is no room for eight");
    let mut queue: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
    let buffer = |length, writable| Buffer { address: heap, length, writable };
    let refusal = |queue: &mut driver::Queue<8>, buffers: &[Buffer]| queue.add(&ram, buffers).unwrap_err();
    assert_eq!(refusal(&mut queue, &[]), driver::Refusal::Empty);
    assert_eq!(refusal(&mut queue, &[buffer(1, true), buffer(1, false)]), driver::Refusal::Order);
    assert_eq!(refusal(&mut queue, &[buffer(u32::MAX, true), buffer(1, true)]), driver::Refusal::Bytes);
    assert_eq!(refusal(&mut queue, &[buffer(1, true); 9]), driver::Refusal::Full);
    let wrong = queue.add_indirect(&ram, 0x3fff_fff8, &[buffer(1, true)]);
    assert_eq!(wrong, Err(driver::Refusal::Outside(0x3fff_fff8)));
    assert!(queue.add_indirect(&ram, u64::MAX - 15, &[buffer(1, true)]).is_err());
    assert_eq!((queue.free(), queue.in_flight()), (8, 0));
    assert_eq!(ram.load(areas.driver + 2), Ok(0), "nothing was shown");
    assert_eq!(queue.add(&ram, &[buffer(1, true); 8]), Ok(0));
    assert_eq!(queue.add_indirect(&ram, heap, &[buffer(1, true)]), Err(driver::Refusal::Full));
}
