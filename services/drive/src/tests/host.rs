// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor and the machine are to the service: events, calls, a controller. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};
use std::fmt;

use turnstile_drive::any::AnyDrive;
use turnstile_pci::msix::Message;
use turnstile_rig::{
    Behind, BlockDriver, Computer, DOORBELL, ECAM, Fuse, Nvme, Ram, Random, Shape, Slot, WINDOW,
};
use turnstile_service_rig::{Bars, Kills, find};
use turnstile_service_rt::drive::{Drive as Settings, Drives};
use turnstile_service_rt::{
    AGAIN, Answer, Attach, BARS, Event, LATER, MEMBER_QUEUES, Service, UNDRIVEN, member_device,
};
use turnstile_service_virtio::World;
use turnstile_virtio::memory::Memory as _;
use turnstile_virtio::ring::Layout;

use crate::Disk;
use crate::machine::{MEMBERS, Machine};
use crate::model::QUEUES;
use crate::program::Program;

/// Bytes of the VM's memory, and of that which the controller reaches.
const MEMORY: usize = 0x40_0000;
const SHARED: usize = 0x20_0000;
/// Where the controller reaches the VM's memory.
pub const LENT: u64 = 0x80_0000_0000;
/// How often an event comes that is to come later: less often than from the hypervisor, to see what becomes of controllers that take longer.
const LATER_EVENTS: u32 = 4;
/// Who waits does so for an alarm that is not further away, in nanoseconds.
const MOMENT: u64 = 2_000_000;
/// Sectors of the disk.
pub const SECTORS: u64 = 512;

/// What calls reach.
pub struct Board {
    pub rams: &'static [Ram],
    /// The controller reaches that of the first member.
    is_direct: bool,
    pub shared: &'static Ram,
    pub nvme: &'static Nvme,
    slot: Slot<'static, Nvme>,
    fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    decoded: RefCell<[Bars; MEMBERS]>,
    messages: RefCell<[Vec<u32>; MEMBERS]>,
    pub clock: Cell<u64>,
    /// How much later it is whenever somebody asks.
    pub tick: Cell<u64>,
    pub alarm: Cell<Option<u64>>,
    pub log: RefCell<String>,
}

/// A member's part of it.
struct Own(&'static Board, usize);

/// How many words a member keeps.
const WORDS: usize = 64;

impl World for Own {
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
            self.0.decoded.borrow_mut()[self.1][usize::from(bar)] = (size != 0).then_some((address, size));
        }
        true
    }

    fn time(&self) -> u64 {
        self.0.time()
    }

    fn get(&self, at: usize) -> u64 {
        self.0.kept.borrow().get(self.1 * WORDS + at).copied().unwrap_or(0)
    }

    fn set(&self, at: usize, word: u64) {
        if self.0.fuse.step() {
            self.0.kept.borrow_mut()[self.1 * WORDS + at] = word;
        }
    }
}

impl Board {
    fn time(&self) -> u64 {
        self.clock.update(|now| now + self.tick.get());
        self.clock.get()
    }
}

/// It is always the same one.
#[derive(Clone, Copy)]
pub struct Whole(pub &'static Board);

impl Machine for Whole {
    type Memory = Ram;
    type Bus = Slot<'static, Nvme>;

    fn world(&self, member: usize) -> impl World<Memory = Ram> {
        Own(self.0, member)
    }

    fn memory(&self, member: usize) -> &Ram {
        &self.0.rams[member]
    }

    fn time(&self) -> u64 {
        self.0.time()
    }

    fn bus(&self) -> &Slot<'static, Nvme> {
        &self.0.slot
    }

    fn shared(&self) -> &Ram {
        self.0.shared
    }

    fn range(&self) -> (u64, u64) {
        (Ram::BASE, SHARED as u64)
    }

    fn on_bus(&self, member: usize, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(Ram::BASE)?;
        let is_there = self.0.is_direct && self.0.rams[member].contains(address, length);
        assert!(member == 0 || !is_there, "it is one member's alone");
        is_there.then_some(LENT + offset)
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.0.log.borrow_mut().push_str(&line.to_string());
    }

    fn alarm(&self, at: u64) {
        if self.0.fuse.step() {
            self.0.alarm.set(Some(at));
        }
    }
}

type Life = Program<Whole, AnyDrive, Layout>;

/// A hypervisor with VMs that have parts of one disk.
pub struct Host {
    machine: &'static Whole,
    pub board: &'static Board,
    drives: Drives,
    /// The member whose computer it is now.
    pub member: usize,
    life: Option<Box<Life>>,
    /// The members whose VMs run.
    attached: Vec<bool>,
    /// The program drives the controller.
    pub driven: bool,
    /// The controller was kept from memory, because the program does not drive it any more.
    pub is_cut_off: bool,
    pub kills: Kills,
    /// What controller's commands are done when, if any order is right.
    pub order: Random,
    interrupts: u32,
    /// The controller does what it is told while the program begins, also if it holds commands otherwise.
    pub is_prompt: bool,
    /// Its interrupt is masked until the alarm is handled.
    masked: bool,
}

impl Host {
    /// With such a controller, which the test may change before the program sees it.
    pub fn new(shape: Shape, settings: Settings, prepare: impl FnOnce(&Nvme)) -> Self {
        Self::build(shape, &[settings], (None, false), prepare)
    }

    /// The same; the controller reaches the VM's memory.
    pub fn direct(shape: Shape, settings: Settings, prepare: impl FnOnce(&Nvme)) -> Self {
        Self::build(shape, &[settings], (None, true), prepare)
    }

    /// The same with several members.
    pub fn several(
        shape: Shape,
        settings: &[Settings],
        left: Option<u64>,
        prepare: impl FnOnce(&Nvme),
    ) -> Self {
        Self::build(shape, settings, (left, false), prepare)
    }

    /// The same; killed after some steps, and the controller may reach the memory of the first member's VM.
    pub fn build(
        shape: Shape,
        settings: &[Settings],
        (left, is_direct): (Option<u64>, bool),
        prepare: impl FnOnce(&Nvme),
    ) -> Self {
        let fuse = Fuse::default();
        let nvme: &'static Nvme = Box::leak(Box::new(Nvme::new(shape, SECTORS)));
        let shared: &'static Ram = Box::leak(Box::new(Ram::new(SHARED, fuse.clone())));
        prepare(nvme);
        let rams: Vec<Ram> = (0..MEMBERS).map(|_| Ram::new(MEMORY, fuse.clone())).collect();
        let rams: &'static [Ram] = Box::leak(rams.into_boxed_slice());
        if is_direct {
            shared.lent.set(Some((LENT, &rams[0])));
        }
        let board: &'static Board = Box::leak(Box::new(Board {
            rams,
            is_direct,
            shared,
            nvme,
            slot: nvme.on(shared),
            fuse,
            kept: RefCell::new(vec![0; WORDS * MEMBERS]),
            decoded: RefCell::default(),
            messages: RefCell::default(),
            clock: Cell::new(0),
            tick: Cell::new(1000),
            alarm: Cell::new(None),
            log: RefCell::default(),
        }));
        let mut host = Self {
            machine: Box::leak(Box::new(Whole(board))),
            board,
            drives: Drives::new(settings.iter().copied()),
            member: 0,
            life: None,
            attached: vec![true; settings.len()],
            driven: false,
            is_cut_off: false,
            kills: Kills::new(board.fuse.clone(), left),
            order: Random(0x6f72_6465),
            interrupts: 0,
            is_prompt: settings.len() > 1,
            masked: false,
        };
        host.begin(false);
        host
    }

    /// Begins a life of the program, until one gets so far.
    fn begin(&mut self, mut kept: bool) {
        loop {
            let mut life = Box::new(Life::NEW);
            // What is for nobody any more.
            self.interrupts = self.board.nvme.face().interrupts.get();
            self.masked = false;
            self.kills.arm();
            let machine = self.machine;
            let holds = self.board.nvme.holds.replace(self.board.nvme.holds.get() && !self.is_prompt);
            let later = |event: &mut dyn FnMut() -> Answer| {
                (0..LATER_EVENTS).map(|_| event().value).find(|value| *value != LATER).unwrap_or(LATER)
            };
            self.driven = later(&mut || life.reset(machine)) == 0;
            let words = self.drives.words();
            self.driven = self.driven && later(&mut || life.device(machine, words)) != UNDRIVEN;
            self.board.nvme.holds.set(holds);
            let running = (0..).zip(&self.attached).filter(|(_, runs)| **runs);
            for (member, _) in running {
                let name = [u64::from_le_bytes(*b"root-of-"), u64::from_le_bytes(*b"all\0\0\0\0\0")];
                self.again(life.attach(machine, Attach { kept, bars: 0, member, settings: name }));
            }
            if !self.kills.is_dead() {
                self.life = Some(life);
                return;
            }
            kept = true;
        }
    }

    fn again(&self, Answer { lines, .. }: Answer) {
        if lines & AGAIN != 0 {
            self.board.alarm.set(Some(0));
        }
    }

    /// Hands the program an event, until it has an answer.
    fn enter(&mut self, act: impl Fn(&mut Life, &'static Whole) -> Answer) -> u64 {
        loop {
            self.kills.arm();
            let mut life = self.life.take().expect("it lives");
            let answer = act(&mut life, self.machine);
            self.again(answer);
            if !self.kills.is_dead() {
                self.life = Some(life);
                return answer.value;
            }
            self.begin(true);
        }
    }

    fn event(&mut self, event: Event) -> u64 {
        self.enter(|life, machine| life.event(machine, event))
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        self.kills.deaths += 1;
        self.life = None;
        self.begin(true);
    }

    /// The VM of the present member stops, and its memory is gone.
    pub fn stop(&mut self) {
        let member = self.member as u64;
        self.attached[self.member] = false;
        self.enter(|life, machine| life.detach(machine, member));
        self.ram().put(Ram::BASE, &[0; MEMORY]);
    }

    /// It starts.
    pub fn start(&mut self) {
        let member = self.member as u64;
        self.attached[self.member] = true;
        self.enter(|life, machine| {
            life.attach(machine, Attach { kept: false, bars: 0, member, settings: [0; 2] })
        });
    }

    /// Both. Nobody's alarm is set then.
    pub fn restart(&mut self) {
        self.stop();
        self.board.alarm.set(None);
        self.start();
    }

    /// Hands over the controller's interrupt, if it has sent one, or if its pin is high.
    pub fn interrupt(&mut self) -> bool {
        if self.masked {
            return false;
        }
        let sent = self.board.nvme.face().interrupts.get();
        let is_there = std::mem::replace(&mut self.interrupts, sent) != sent || self.board.nvme.is_high();
        let is_new = is_there && self.driven;
        if is_new {
            self.stray();
        }
        is_new
    }

    /// An interrupt, wherever it comes from.
    pub fn stray(&mut self) {
        let now = self.board.clock.get();
        let value = self.enter(|life, machine| life.interrupt(machine, now));
        self.driven = value != UNDRIVEN;
        self.is_cut_off |= value == UNDRIVEN;
        self.masked = value == LATER;
    }

    /// The controller does all that it was told.
    pub fn work(&self) {
        self.board.nvme.run(self.board.shared);
    }

    /// The VM's memory.
    pub fn memory(&self) -> Vec<u8> {
        self.board.rams[0].get(Ram::BASE, MEMORY)
    }

    /// The memory that the program shares with the controller.
    pub fn shared(&self) -> Vec<u8> {
        self.board.shared.get(Ram::BASE, SHARED)
    }

    /// The alarm goes off, if it is set.
    pub fn alarm(&mut self) -> bool {
        let Some(at) = self.board.alarm.take() else { return false };
        self.board.clock.update(|now| now.max(at));
        self.is_cut_off |= self.event(Event::Alarm(self.board.clock.get())) == UNDRIVEN;
        self.masked = false;
        true
    }

    /// The number of a device of the present member.
    const fn device(&self, device: u64) -> u64 {
        member_device(self.member as u64, device)
    }

    fn find(&self, address: u64) -> Option<(u64, u64)> {
        assert!((ECAM..ECAM + 0x1000).contains(&address) || WINDOW.contains(&address));
        find(ECAM, &self.board.decoded.borrow()[self.member], address)
    }
}

impl Computer for Host {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let Some((device, offset)) = self.find(address) else { return u64::MAX >> (64 - 8 * size) };
        self.event(Event::Read { device: self.device(device), offset, size })
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        let Some((device, offset)) = self.find(address) else { return };
        let bell = Disk::DOORBELLS.queue(offset, value).filter(|_| device == BARS + 4);
        match bell {
            Some(queue) => {
                let queues = 1 << (self.member as u64 * MEMBER_QUEUES + queue);
                self.event(Event::Doorbell { queues, now: 0 })
            }
            None => self.event(Event::Write { device: self.device(device), offset, size, value }),
        };
    }

    fn ram(&self) -> &Ram {
        &self.board.rams[self.member]
    }

    fn messages(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.board.messages.borrow_mut()[self.member])
    }

    /// The controller does some of what it was told, in any order; or it has nothing to do, and only time passes.
    fn wait(&mut self) -> bool {
        let (nvme, shared) = (self.board.nvme, self.board.shared);
        let before = nvme.face().interrupts.get();
        nvme.run_some(shared, &mut self.order, 2);
        let worked = nvme.face().interrupts.get() != before;
        let is_due = self.board.alarm.get().is_some_and(|at| at <= self.board.clock.get() + MOMENT);
        self.interrupt() || worked || is_due && self.alarm()
    }
}

/// A driver of the disk, which works.
pub fn driver(host: &mut Host) -> BlockDriver {
    let mut driver = BlockDriver::probe(host, QUEUES);
    driver.enable_messages(host);
    driver
}
