// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network card of the machine: Intel's 82574, as its driver reaches it (82574 GbE Controller Family Datasheet).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use turnstile_virtio::driver::pci;
use turnstile_virtio::memory::Memory;

use crate::ram::Ram;

/// Bytes of BAR 0.
const LENGTH: u64 = 0x2_0000;
/// How long nobody is to access a card that resets, in nanoseconds.
const SILENCE: u64 = 1_000_000;

/// Registers, by their offsets.
const CTRL: u64 = 0x00;
const STATUS: u64 = 0x08;
const EECD: u64 = 0x10;
const CTRL_EXT: u64 = 0x18;
const ICR: u64 = 0xc0;
const IMS: u64 = 0xd0;
const IMC: u64 = 0xd8;
const EIAC: u64 = 0xdc;
const IVAR: u64 = 0xe4;
const RCTL: u64 = 0x100;
const TCTL: u64 = 0x400;
/// A ring's, behind the first one of its queue.
const BASE_LOW: u64 = 0x00;
const BASE_HIGH: u64 = 0x04;
const BYTES: u64 = 0x08;
const HEAD: u64 = 0x10;
const TAIL: u64 = 0x18;
/// The queues that packets are received by and sent by.
const RECEIVE: u64 = 0x2800;
const SEND: u64 = 0x3800;

/// All that may be accessed.
const KNOWN: [u64; 36] = [
    CTRL, STATUS, EECD, CTRL_EXT, ICR, 0xc4, IMS, IMC, EIAC, IVAR, 0xe8, RCTL, TCTL, 0x410, 0x2800, 0x2804,
    0x2808, 0x2810, 0x2818, 0x2820, 0x2828, 0x282c, 0x3800, 0x3804, 0x3808, 0x3810, 0x3818, 0x3820, 0x3828,
    0x382c, 0x5000, 0x5008, 0x5400, 0x5404, 0x5b00, 0x5b64,
];

const RST: u32 = 1 << 26;
const LINK_UP: u32 = 1 << 6;
const NO_MASTER: u32 = 1 << 2;
const ENABLED: u32 = 1 << 1;
/// What a driver of a switch wants of the two controls: see the registers' descriptions.
const RCTL_WANTED: u32 = 1 << 26 | 1 << 15 | 1 << 4 | 1 << 3 | ENABLED;
const TCTL_WANTED: u32 = 1 << 28 | 0x3f << 12 | 0x0f << 4 | 1 << 3 | ENABLED;

/// What a descriptor of a packet to send has as its command: the end, a CRC, a report.
const COMMAND: u8 = 0x0b;

/// What it says of a packet that it has received, other than the truth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lie {
    /// This length.
    pub length: Option<u16>,
    /// That the packet does not end here.
    pub goes_on: bool,
    /// These errors.
    pub errors: u8,
}

/// A card, and the wire behind it.
#[derive(Debug)]
pub struct E1000e {
    by_messages: bool,
    registers: RefCell<BTreeMap<u64, u32>>,
    /// What the configuration space has instead of what it should.
    pub patches: RefCell<BTreeMap<u16, u8>>,
    /// What registers read as, by their offsets.
    pub stuck: RefCell<BTreeMap<u64, u32>>,
    /// How many bytes of BAR 0 there are.
    pub length: Cell<u64>,
    /// The time in nanoseconds. It goes on by whoever asks for it.
    pub clock: Cell<u64>,
    /// How long it loads its NVM after a reset.
    pub loads: Cell<u64>,
    /// It does not come out of a reset.
    pub hangs: Cell<bool>,
    reset: Cell<Option<u64>>,
    /// The packets that it has sent.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// It keeps what it is to send.
    pub holds: Cell<bool>,
    /// How many interrupts it has sent: messages, or a pin that went high.
    pub interrupts: Cell<u32>,
    /// How often it was told of a tail.
    pub notified: Cell<u32>,
    /// How often a driver has done what it should not.
    pub strays: Cell<u32>,
}

impl E1000e {
    /// Makes one that interrupts by MSI-X, or by its pin.
    pub fn new(by_messages: bool) -> Self {
        let card = Self {
            by_messages,
            registers: RefCell::default(),
            patches: RefCell::default(),
            stuck: RefCell::default(),
            length: Cell::new(LENGTH),
            clock: Cell::new(0),
            loads: Cell::new(0),
            hangs: Cell::new(false),
            reset: Cell::new(None),
            sent: RefCell::default(),
            holds: Cell::new(false),
            interrupts: Cell::new(0),
            notified: Cell::new(0),
            strays: Cell::new(0),
        };
        card.forget();
        // Firmware has left it with a ring, and it interrupts.
        let firmware = [
            (CTRL, LINK_UP),
            (RCTL, RCTL_WANTED),
            (TCTL, TCTL_WANTED),
            (RECEIVE + BYTES, 128),
            (RECEIVE + TAIL, 7),
        ];
        for (register, value) in firmware.into_iter().chain([(IMS, u32::MAX), (RECEIVE, Ram::BASE as u32)]) {
            card.put(register, value);
        }
        card
    }

    /// As it is after a reset.
    fn forget(&self) {
        let mut registers = self.registers.borrow_mut();
        registers.clear();
        registers.extend([(0x5400, 0x0012_5452), (0x5404, 0x8000_ca34), (0x5000, 0x300)]);
    }

    fn register(&self, at: u64) -> u32 {
        self.registers.borrow().get(&at).copied().unwrap_or(0)
    }

    fn put(&self, at: u64, value: u32) {
        self.registers.borrow_mut().insert(at, value);
    }

    /// The time, which goes on.
    pub fn time(&self) -> u64 {
        self.clock.update(|clock| clock + 1000);
        self.clock.get()
    }

    /// Whether it sends and receives, as its driver wants it.
    pub fn runs(&self) -> bool {
        self.register(CTRL) & LINK_UP != 0
            && (self.register(RCTL), self.register(TCTL)) == (RCTL_WANTED, TCTL_WANTED)
    }

    /// It has forgotten everything by itself.
    pub fn fail(&self) {
        self.forget();
    }

    fn stray(&self, is_one: bool) {
        self.strays.update(|strays| strays + u32::from(is_one));
    }

    /// What interrupts now.
    fn level(&self) -> u32 {
        self.register(ICR) & self.register(IMS)
    }

    /// Changes interrupts, and sends those that have come by that.
    fn change(&self, register: u64, value: u32) {
        let before = self.level();
        self.put(register, value);
        let raised = self.level() & !before;
        if !self.by_messages {
            self.interrupts.update(|count| count + u32::from(before == 0 && raised != 0));
            return;
        }
        for (cause, entry) in [(1 << 20, 0), (1 << 22, 8)] {
            if raised & cause != 0 && self.register(IVAR) >> entry & 0xf == 8 {
                self.interrupts.update(|count| count + 1);
                let clears = self.register(EIAC) & cause;
                self.put(ICR, self.register(ICR) & !clears);
                self.put(IMS, self.register(IMS) & !clears);
            }
        }
    }

    fn cause(&self, pin: u32, message: u32) {
        let cause = if self.by_messages { message } else { pin };
        self.change(ICR, self.register(ICR) | cause);
    }

    /// Whether its pin is high.
    pub fn line(&self) -> bool {
        !self.by_messages && self.level() != 0
    }

    /// The next descriptor of a queue: where it is. `None` if it has none.
    fn next(&self, queue: u64) -> Option<u64> {
        let [head, tail, bytes] = [HEAD, TAIL, BYTES].map(|at| self.register(queue + at));
        self.stray(!bytes.is_multiple_of(128) || tail * 16 >= bytes.max(1));
        let base =
            u64::from(self.register(queue + BASE_HIGH)) << 32 | u64::from(self.register(queue + BASE_LOW));
        (head != tail && head * 16 < bytes).then_some(base + u64::from(head) * 16)
    }

    /// Says that it is done with the next descriptor.
    fn pass(&self, queue: u64) {
        let [head, bytes] = [HEAD, BYTES].map(|at| self.register(queue + at));
        self.put(queue + HEAD, (head + 1) % (bytes / 16).max(1));
    }

    /// Sends so many packets, though it may hold the others.
    pub fn send_some(&self, ram: &Ram, count: usize) {
        for _ in 0..count {
            let Some(at) = self.next(SEND).filter(|_| self.register(TCTL) & ENABLED != 0) else { return };
            let bytes = ram.get(at, 16);
            let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let length = u16::from_le_bytes([bytes[8], bytes[9]]);
            self.stray(bytes[11] != COMMAND || !(17..=1518).contains(&length));
            if !ram.contains(address, length.into()) {
                // Nobody answers, and it goes no further.
                return self.stray(true);
            }
            let mut packet = ram.get(address, length.into());
            packet.resize(packet.len().max(60), 0);
            self.sent.borrow_mut().push(packet);
            ram.put(at + 12, &[1]);
            self.pass(SEND);
            self.cause(1, 1 << 22);
        }
    }

    /// Does what its driver wants: sends packets.
    pub fn run(&self, ram: &Ram) {
        if !self.holds.get() {
            self.send_some(ram, usize::MAX);
        }
    }

    /// A packet has come. False if it has no buffer for it, or no driver, or if it is too long.
    pub fn receive(&self, ram: &Ram, packet: &[u8]) -> bool {
        packet.len() <= 1518 && self.receive_as(ram, packet, Lie::default())
    }

    /// Writes bytes to the next buffer, and lies about them.
    pub fn receive_as(&self, ram: &Ram, bytes: &[u8], lie: Lie) -> bool {
        if !self.runs() {
            return false;
        }
        let Some(at) = self.next(RECEIVE).filter(|at| ram.contains(*at, 16)) else { return false };
        let address = u64::from_le_bytes(ram.get(at, 8).try_into().unwrap());
        if !ram.contains(address, bytes.len() as u64) {
            self.stray(true);
            return false;
        }
        ram.put(address, bytes);
        let length = lie.length.unwrap_or(bytes.len() as u16);
        ram.put(at + 8, &length.to_le_bytes());
        ram.put(at + 12, &[if lie.goes_on { 1 } else { 3 }, lie.errors]);
        self.pass(RECEIVE);
        self.cause(1 << 7, 1 << 20);
        true
    }

    /// Whether nobody is to access it now.
    fn is_silent(&self) -> bool {
        let now = self.clock.get();
        self.reset.get().is_some_and(|reset| now - reset < SILENCE)
    }

    fn write(&self, ram: &Ram, offset: u64, value: u32) {
        match offset {
            CTRL if value & RST != 0 => {
                self.forget();
                self.reset.set(Some(self.clock.get()));
            }
            IMS => self.change(IMS, self.register(IMS) | value),
            IMC => self.change(IMS, self.register(IMS) & !value),
            ICR => self.change(ICR, self.register(ICR) & !value),
            TCTL | RCTL => {
                // A bit that a driver does not want is as wrong as one that it forgets.
                self.stray(value != 0 && value != if offset == TCTL { TCTL_WANTED } else { RCTL_WANTED });
                self.put(offset, value);
            }
            _ => self.put(offset, value),
        }
        if matches!(offset, 0x2818 | 0x3818) {
            self.notified.update(|count| count + 1);
            self.run(ram);
        }
    }

    fn read(&self, offset: u64) -> u32 {
        match offset {
            CTRL if self.hangs.get() => self.register(CTRL) | RST,
            STATUS if self.register(CTRL) & NO_MASTER != 0 => 2,
            STATUS => 2 | 1 << 19,
            EECD => {
                let loaded = self.reset.get().unwrap_or(0) + self.loads.get();
                u32::from(self.clock.get() >= loaded) << 9
            }
            ICR => {
                let value = self.register(ICR);
                if !self.by_messages {
                    self.put(ICR, 0);
                }
                value
            }
            IMC => 0,
            offset => self.register(offset),
        }
    }

    /// Says whether an access is one that a driver should make.
    fn is_sound(&self, bar: u8, offset: u64, size: u8) -> bool {
        let is_sound = bar == 0 && size == 4 && KNOWN.contains(&offset) && !self.is_silent();
        self.stray(!is_sound);
        is_sound
    }

    /// The card's registers, while it reaches this memory.
    pub const fn on<'a>(&'a self, ram: &'a Ram) -> E1000eSlot<'a> {
        E1000eSlot { card: self, ram }
    }
}

/// A card where it reaches memory.
#[derive(Clone, Copy, Debug)]
pub struct E1000eSlot<'a> {
    card: &'a E1000e,
    ram: &'a Ram,
}

impl pci::Function for E1000eSlot<'_> {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        let byte = |at: u16| -> u8 {
            let patch = self.card.patches.borrow().get(&at).copied();
            patch.unwrap_or(match at {
                0 | 1 => [0x86, 0x80][usize::from(at)],
                2 | 3 => [0xd3, 0x10][usize::from(at - 2)],
                // It has capabilities: power management, and MSI-X of five vectors.
                6 => 0x10,
                0x34 => 0xc8,
                0xc8 => 1,
                0xc9 => 0xa0,
                0xa0 => 0x11,
                0xa2 => 4,
                0xa3 => u8::from(self.card.by_messages) << 7,
                _ => 0,
            })
        };
        (offset..)
            .take(size.into())
            .map(byte)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u32::from(byte))
    }

    fn length(&self, bar: u8) -> u64 {
        if bar == 0 { self.card.length.get() } else { 0 }
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        if !self.card.is_sound(bar, offset, size) {
            return u32::MAX;
        }
        let value = self.card.read(offset);
        self.card.stuck.borrow().get(&offset).copied().unwrap_or(value)
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        if self.card.is_sound(bar, offset, size) && self.ram.fuse.step() {
            self.card.write(self.ram, offset, value);
        }
    }
}
