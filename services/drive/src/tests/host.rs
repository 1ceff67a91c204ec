// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor and the machine are to the service: events, calls, a controller. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};
use std::fmt;

use turnstile_drive::any::AnyDrive;
use turnstile_pci::msix::Message;
use turnstile_rig::{
    Behind, BlockDriver, Computer, DOORBELL, ECAM, Fuse, Nvme, Ram, Random, Shape, Slot, WINDOW,
};
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_service_rt::{AGAIN, Answer, Attach, BARS, CONFIGURATION, Event, LATER, Service, UNDRIVEN};
use turnstile_service_virtio::World;
use turnstile_virtio::memory::Memory as _;
use turnstile_virtio::ring::Layout;

use crate::Disk;
use crate::machine::Machine;
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
    pub ram: &'static Ram,
    /// The controller reaches it.
    is_direct: bool,
    pub shared: &'static Ram,
    pub nvme: &'static Nvme,
    slot: Slot<'static, Nvme>,
    fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    decoded: RefCell<[Option<(u64, u64)>; 6]>,
    messages: RefCell<Vec<u32>>,
    pub clock: Cell<u64>,
    /// How much later it is whenever somebody asks.
    pub tick: Cell<u64>,
    pub alarm: Cell<Option<u64>>,
    pub log: RefCell<String>,
}

impl World for &'static Board {
    type Memory = Ram;

    fn memory(&self) -> &Ram {
        self.ram
    }

    fn message(&self, Message { address, data }: Message) {
        if self.fuse.step() && address == DOORBELL {
            self.messages.borrow_mut().push(data);
        }
    }

    fn flush(&self) {}

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        if self.fuse.step() {
            self.decoded.borrow_mut()[usize::from(bar)] = (size != 0).then_some((address, size));
        }
        true
    }

    fn time(&self) -> u64 {
        self.clock.update(|now| now + self.tick.get());
        self.clock.get()
    }

    fn get(&self, at: usize) -> u64 {
        self.kept.borrow().get(at).copied().unwrap_or(0)
    }

    fn set(&self, at: usize, word: u64) {
        if self.fuse.step() {
            self.kept.borrow_mut()[at] = word;
        }
    }
}

/// It is always the same one.
#[derive(Clone, Copy)]
pub struct Whole(pub &'static Board);

impl Machine for Whole {
    type Memory = Ram;
    type Bus = Slot<'static, Nvme>;

    fn world(&self) -> impl World<Memory = Ram> {
        self.0
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

    fn on_bus(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(Ram::BASE)?;
        let is_there = self.0.is_direct && self.0.ram.contains(address, length);
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

/// A hypervisor with one VM and its disk.
pub struct Host {
    machine: &'static Whole,
    pub board: &'static Board,
    settings: Settings,
    life: Option<Box<Life>>,
    /// Its VM runs.
    attached: bool,
    /// The program drives the controller.
    pub driven: bool,
    /// The controller was kept from memory, because the program does not drive it any more.
    pub is_cut_off: bool,
    /// After how many steps it is killed, and after how many again, at most.
    pub left: Option<u64>,
    pub most: Option<Random>,
    pub deaths: u64,
    /// What controller's commands are done when, if any order is right.
    pub order: Random,
    interrupts: u32,
    /// Its interrupt is masked until the alarm is handled.
    masked: bool,
}

impl Host {
    /// With such a controller, which the test may change before the program sees it.
    pub fn new(shape: Shape, settings: Settings, prepare: impl FnOnce(&Nvme)) -> Self {
        Self::build(shape, settings, (None, false), prepare)
    }

    /// The same; the controller reaches the VM's memory.
    pub fn direct(shape: Shape, settings: Settings, prepare: impl FnOnce(&Nvme)) -> Self {
        Self::build(shape, settings, (None, true), prepare)
    }

    /// The same; killed after some steps, and the controller may reach the VM's memory.
    pub fn build(
        shape: Shape,
        settings: Settings,
        (left, is_direct): (Option<u64>, bool),
        prepare: impl FnOnce(&Nvme),
    ) -> Self {
        let fuse = Fuse::default();
        let nvme: &'static Nvme = Box::leak(Box::new(Nvme::new(shape, SECTORS)));
        let shared: &'static Ram = Box::leak(Box::new(Ram::new(SHARED, fuse.clone())));
        prepare(nvme);
        let ram: &'static Ram = Box::leak(Box::new(Ram::new(MEMORY, fuse.clone())));
        if is_direct {
            shared.lent.set(Some((LENT, ram)));
        }
        let board: &'static Board = Box::leak(Box::new(Board {
            ram,
            is_direct,
            shared,
            nvme,
            slot: nvme.on(shared),
            fuse,
            kept: RefCell::new(vec![0; 64]),
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
            settings,
            life: None,
            attached: true,
            driven: false,
            is_cut_off: false,
            left,
            most: None,
            deaths: 0,
            order: Random(0x6f72_6465),
            interrupts: 0,
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
            self.arm();
            let machine = self.machine;
            let later = |event: &mut dyn FnMut() -> Answer| {
                (0..LATER_EVENTS).map(|_| event().value).find(|value| *value != LATER).unwrap_or(LATER)
            };
            self.driven = later(&mut || life.reset(machine)) == 0;
            let words = self.settings.words();
            self.driven = self.driven && later(&mut || life.device(machine, words)) != UNDRIVEN;
            let mut answer = Answer::default();
            if self.attached {
                let name = [u64::from_le_bytes(*b"root-of-"), u64::from_le_bytes(*b"all\0\0\0\0\0")];
                answer = life.attach(machine, Attach { kept, bars: 0, member: 0, settings: name });
            }
            self.again(answer);
            if !self.is_dead() {
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

    fn arm(&self) {
        match self.left {
            Some(left) => self.board.fuse.arm(left),
            None => self.board.fuse.mend(),
        }
    }

    /// Whether it was killed; then it may be killed again.
    fn is_dead(&mut self) -> bool {
        let (blown, steps) = (self.board.fuse.is_blown(), self.board.fuse.steps());
        self.board.fuse.mend();
        self.left = match (&mut self.most, self.left) {
            (Some(random), _) if blown => Some(random.below(3000)),
            (None, _) if blown => None,
            (_, left) => left.map(|left| left - steps),
        };
        self.deaths += u64::from(blown);
        blown
    }

    /// Hands the program an event, until it has an answer.
    fn enter(&mut self, act: impl Fn(&mut Life, &'static Whole) -> Answer) -> u64 {
        loop {
            self.arm();
            let mut life = self.life.take().expect("it lives");
            let answer = act(&mut life, self.machine);
            self.again(answer);
            if !self.is_dead() {
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
        self.deaths += 1;
        self.life = None;
        self.begin(true);
    }

    /// The VM stops, and starts anew.
    pub fn restart(&mut self) {
        self.enter(|life, machine| life.detach(machine));
        self.board.alarm.set(None);
        self.board.ram.put(Ram::BASE, &[0; MEMORY]);
        self.enter(|life, machine| {
            life.attach(machine, Attach { kept: false, bars: 0, member: 0, settings: [0; 2] })
        });
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
            let now = self.board.clock.get();
            let value = self.enter(|life, machine| life.interrupt(machine, now));
            self.driven = value != UNDRIVEN;
            self.is_cut_off |= value == UNDRIVEN;
            self.masked = value == LATER;
        }
        is_new
    }

    /// The controller does all that it was told.
    pub fn work(&self) {
        self.board.nvme.run(self.board.shared);
    }

    /// The VM's memory.
    pub fn memory(&self) -> Vec<u8> {
        self.board.ram.get(Ram::BASE, MEMORY)
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

    fn find(&self, address: u64) -> Option<(u64, u64)> {
        if (ECAM..ECAM + 0x1000).contains(&address) {
            return Some((CONFIGURATION, address - ECAM));
        }
        assert!(WINDOW.contains(&address));
        let decoded = self.board.decoded.borrow();
        let mut all = (BARS..).zip(decoded.iter()).filter_map(|(device, bar)| Some((device, (*bar)?)));
        all.find_map(|(device, (base, size))| {
            (base..base + size).contains(&address).then(|| (device, address - base))
        })
    }
}

impl Computer for Host {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let Some((device, offset)) = self.find(address) else { return u64::MAX >> (64 - 8 * size) };
        self.event(Event::Read { device, offset, size })
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        let Some((device, offset)) = self.find(address) else { return };
        let bell = Disk::DOORBELLS.queue(offset, value).filter(|_| device == BARS + 4);
        match bell {
            Some(queue) => self.event(Event::Doorbell { queues: 1 << queue, now: 0 }),
            None => self.event(Event::Write { device, offset, size, value }),
        };
    }

    fn ram(&self) -> &Ram {
        self.board.ram
    }

    fn messages(&mut self) -> Vec<u32> {
        self.board.messages.take()
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
