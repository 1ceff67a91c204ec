// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};

use turnstile_nic::card::Bus;
use turnstile_pci::absent;
use turnstile_pci::msix::Message;
use turnstile_rig::{Card, E1000e, Fuse, Ram};
use turnstile_service_rig::{Bars, Kills, find};
use turnstile_service_rt::{
    AGAIN, Answer, Attach, BARS, Event, MEMBER_QUEUES, Service, UNDRIVEN, member_device,
};
use turnstile_service_virtio::World;
use turnstile_virtio::driver::pci::Function;

use crate::members::{MEMBERS, Members, PORTS};
use crate::switch::Switch;
use crate::{Program, WORDS};

/// Members that tests have.
pub const VMS: usize = 3;
/// Bytes of a VM's memory.
pub const MEMORY: usize = 0x10_0000;
/// Where a function's configuration space is, and what firmware gives its BARs.
pub const ECAM: u64 = 0x1_0000;
pub const FIRMWARE: u64 = 0x1008_0000;
/// Where messages are interrupts.
pub const DOORBELL: u64 = 0x800_0040;

/// What calls reach.
pub struct Board {
    /// The last one is the memory that the card reaches.
    pub rams: [Ram; PORTS],
    pub card: Option<Card>,
    /// Another card, instead.
    pub intel: Option<E1000e>,
    pub log: RefCell<String>,
    pub fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    decoded: RefCell<[Bars; MEMBERS]>,
    /// How often a BAR was taken away.
    pub gone: Cell<u32>,
    pub messages: RefCell<[Vec<u32>; MEMBERS]>,
    /// The time, and how much later it is whenever somebody asks.
    pub clock: Cell<u64>,
    pub tick: Cell<u64>,
    pub alarm: Cell<u64>,
}

/// The board, as a member's function sees it.
struct Side<'a>(&'a Board, usize);

impl World for Side<'_> {
    type Memory = Ram;

    fn memory(&self) -> &Ram {
        &self.0.rams[self.1]
    }

    fn message(&self, Message { address, data }: Message) {
        if self.0.fuse.step() && address == DOORBELL {
            self.0.messages.borrow_mut()[self.1].push(data);
        }
    }

    fn flush(&self) {}

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        if self.0.fuse.step() {
            let new = (size != 0).then_some((address, size));
            let old = std::mem::replace(&mut self.0.decoded.borrow_mut()[self.1][usize::from(bar)], new);
            self.0.gone.update(|gone| gone + u32::from(old.is_some() && old != new));
        }
        true
    }

    fn time(&self) -> u64 {
        Members::time(self.0)
    }

    fn get(&self, at: usize) -> u64 {
        self.0.kept.borrow()[self.1 * WORDS + at]
    }

    fn set(&self, at: usize, word: u64) {
        if self.0.fuse.step() {
            self.0.kept.borrow_mut()[self.1 * WORDS + at] = word;
        }
    }
}

impl Board {
    /// The packets that the card has sent, without their headers.
    pub fn wire(&self) -> Vec<Vec<u8>> {
        let sent = self.card.iter().flat_map(|card| card.sent.take());
        let whole = self.intel.iter().flat_map(|card| card.sent.take());
        sent.map(|bytes| bytes[12..].to_vec()).chain(whole).collect()
    }

    /// A packet comes from the network. False if the card has no buffer.
    pub fn arrive(&self, packet: &[u8]) -> bool {
        let ram = &self.rams[MEMBERS];
        self.card.as_ref().is_some_and(|card| card.receive_plain(ram, packet))
            || self.intel.as_ref().is_some_and(|card| card.receive(ram, packet))
    }
}

impl Board {
    /// Lets the card that there is do something.
    fn with_function<T>(&self, act: impl Fn(&dyn Function) -> T) -> Option<T> {
        let ram = &self.rams[MEMBERS];
        let card = self.card.as_ref().map(|card| act(&card.on(ram)));
        card.or_else(|| self.intel.as_ref().map(|card| act(&card.on(ram))))
    }
}

impl Function for Board {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        self.with_function(|card| card.configuration(offset, size)).unwrap_or(absent(size))
    }

    fn length(&self, bar: u8) -> u64 {
        self.with_function(|card| card.length(bar)).unwrap_or(0)
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        self.with_function(|card| card.read(bar, offset, size)).unwrap_or(absent(size))
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        self.with_function(|card| card.write(bar, offset, size, value));
    }
}

impl Bus for Board {
    type Function = Self;
    type Memory = Ram;

    fn function(&self) -> &Self {
        self
    }

    fn memory(&self) -> &Ram {
        &self.rams[MEMBERS]
    }

    fn time(&self) -> u64 {
        Members::time(self)
    }
}

impl Members for Board {
    type Memory = Ram;
    type Bus = Self;

    fn world(&self, member: usize) -> impl World<Memory = Ram> {
        Side(self, member)
    }

    fn memories(&self) -> &[Ram; PORTS] {
        &self.rams
    }

    fn bus(&self) -> &Self {
        self
    }

    fn shared(&self) -> (u64, u64) {
        (Ram::BASE, self.rams[MEMBERS].length() as u64)
    }

    fn log(&self, text: &str) {
        if self.fuse.step() {
            self.log.borrow_mut().push_str(text);
        }
    }

    fn flush(&self) {}

    fn time(&self) -> u64 {
        self.clock.set(self.clock.get() + self.tick.get());
        if let Some(card) = &self.intel {
            card.clock.set(self.clock.get());
        }
        self.clock.get()
    }

    fn alarm(&self, at: u64) {
        if self.fuse.step() {
            self.alarm.set(at);
        }
    }
}

/// A hypervisor with a few VMs.
pub struct Host {
    pub board: Board,
    switch: Box<Switch>,
    settings: [Option<[u64; 2]>; MEMBERS],
    /// The service wants another event.
    pub again: bool,
    pub kills: Kills,
}

/// The settings of a member, with more bits.
pub fn settings(member: usize, more: u64) -> u64 {
    let [a, b, c, d, e, f] = mac(member);
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | more
}

pub fn mac(member: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, member as u8]
}

/// The bits of settings that say how many pairs of queues there are.
pub const fn pairs(count: u64) -> u64 {
    (count - 1) << 52
}

impl Host {
    /// Members with these bits and rates.
    pub fn new(members: [(u64, u64); VMS], left: Option<u64>) -> Self {
        Self::with_card(members, left, None)
    }

    /// The same, with an uplink.
    pub fn with_card(members: [(u64, u64); VMS], left: Option<u64>, card: Option<Card>) -> Self {
        Self::with_cards(members, left, (card, None))
    }

    /// The same, with a card of one kind or the other.
    pub fn with_cards(
        members: [(u64, u64); VMS],
        left: Option<u64>,
        (card, intel): (Option<Card>, Option<E1000e>),
    ) -> Self {
        let fuse = Fuse::default();
        let has_card = card.is_some() || intel.is_some();
        let length = |at| match at {
            ..VMS => MEMORY,
            MEMBERS if has_card => MEMORY,
            _ => 0x1000,
        };
        let board = Board {
            rams: std::array::from_fn(|at| Ram::new(length(at), fuse.clone())),
            card,
            intel,
            log: RefCell::default(),
            fuse: fuse.clone(),
            kept: RefCell::new(vec![0; MEMBERS * WORDS]),
            decoded: RefCell::default(),
            gone: Cell::new(0),
            messages: RefCell::default(),
            clock: Cell::new(0),
            tick: Cell::new(1000),
            alarm: Cell::new(u64::MAX),
        };
        let settings = [None; MEMBERS];
        let mut host = Self {
            board,
            switch: Box::new(Switch::new()),
            settings,
            again: false,
            kills: Kills::new(fuse, left),
        };
        if has_card {
            while host.plug().is_none() {}
        }
        for (member, (more, rate)) in members.into_iter().enumerate() {
            host.attach(member, [self::settings(member, more), rate]);
        }
        host
    }

    /// A VM has started.
    pub fn attach(&mut self, member: usize, settings: [u64; 2]) {
        let attach = Attach { kept: false, bars: FIRMWARE, member: member as u64, settings };
        self.enter(|switch, board| switch.attach(board, attach));
        self.settings[member] = Some(settings);
    }

    /// A VM has stopped.
    pub fn detach(&mut self, member: usize) {
        self.settings[member] = None;
        self.enter(|switch, board| switch.detach(board, member as u64));
        self.board.decoded.borrow_mut()[member] = [None; 6];
    }

    /// Lets the service do something until it has answered.
    fn enter(&mut self, act: impl Fn(&mut Switch, &Board) -> Answer) -> u64 {
        loop {
            if let Some(value) = self.once(&act) {
                return value;
            }
            while !self.begin() {}
        }
    }

    /// The same, once. `None` if it was killed.
    fn once(&mut self, act: impl Fn(&mut Switch, &Board) -> Answer) -> Option<u64> {
        self.kills.arm();
        let answer = act(&mut self.switch, &self.board);
        let blown = self.kills.is_dead();
        self.again |= !blown && answer.lines & AGAIN != 0;
        (!blown).then_some(answer.value)
    }

    /// Tells it of its card. `None` if it was killed.
    fn plug(&mut self) -> Option<()> {
        let value = self.once(|switch, board| switch.reset(board))?;
        if value != UNDRIVEN {
            self.once(|switch, board| switch.device(board))?;
        }
        Some(())
    }

    /// Begins a life of the service. False if it did not get so far.
    fn begin(&mut self) -> bool {
        *self.switch = Switch::new();
        if (self.board.card.is_some() || self.board.intel.is_some()) && self.plug().is_none() {
            return false;
        }
        (0..MEMBERS).all(|member| {
            let Some(settings) = self.settings[member] else { return true };
            let attach = Attach { kept: true, bars: FIRMWARE, member: member as u64, settings };
            self.once(|switch, board| switch.attach(board, attach)).is_some()
        })
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        self.enter(|switch, board| switch.event(board, event))
    }

    /// An interrupt that comes from nowhere.
    pub fn stray(&mut self) -> u64 {
        self.enter(|switch, board| switch.interrupt(board, Members::time(board)))
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        self.kills.deaths += 1;
        while !self.begin() {}
    }

    /// The alarm, if the service wants another event at once, or its time has come.
    pub fn alarm(&mut self) -> bool {
        let again = std::mem::take(&mut self.again) || self.board.alarm.get() <= self.board.clock.get();
        if again {
            self.board.alarm.set(u64::MAX);
            let now = Members::time(&self.board);
            self.event(Event::Alarm(now));
        }
        again
    }

    fn find(&self, member: usize, address: u64) -> Option<(u64, u64)> {
        find(ECAM, &self.board.decoded.borrow()[member], address)
    }

    /// A guest reads.
    pub fn read(&mut self, member: usize, address: u64, size: u64) -> u64 {
        let Some((device, offset)) = self.find(member, address) else { return u64::MAX >> (64 - 8 * size) };
        self.event(Event::Read { device: member_device(member as u64, device), offset, size })
    }

    /// A guest writes.
    pub fn write(&mut self, member: usize, address: u64, size: u64, value: u64) {
        let Some((device, offset)) = self.find(member, address) else { return };
        let bell = Program::DOORBELLS.queue(offset, value).filter(|_| device == BARS + 4);
        match bell {
            Some(queue) => self.ring(1 << (member as u64 * MEMBER_QUEUES + queue)),
            None => {
                let device = member_device(member as u64, device);
                self.event(Event::Write { device, offset, size, value });
            }
        }
    }

    /// The card has interrupted, if it has. Returns whether it has.
    pub fn interrupt(&mut self) -> bool {
        let card = self.board.card.as_ref().is_some_and(|card| card.interrupts.take() != 0);
        let intel = self.board.intel.as_ref();
        let has = card || intel.is_some_and(|card| card.interrupts.take() != 0 || card.line());
        if has {
            let now = Members::time(&self.board);
            self.enter(|switch, board| switch.interrupt(board, now));
        }
        has
    }

    /// Guests ring.
    pub fn ring(&mut self, queues: u64) {
        let now = Members::time(&self.board);
        self.event(Event::Doorbell { queues, now });
    }
}
