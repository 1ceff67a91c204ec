// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The model under test with a CPU that does what SVM says about `V_IRQ`, a guest that keeps the rules, and the ideal
//! APIC beside it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;

use turnstile_vapic::{Bus, Context, Event, Hardware, Lapic, Routes, Signal};

use super::reference::Reference;

/// The VMCB's fields, the guest's word and the clock.
#[derive(Default)]
pub struct Machine {
    pub v_irq: bool,
    vector: u8,
    unmasked: bool,
    tpr: u8,
    pub word: bool,
    pub clock: u64,
    pub armed: u64,
    pub events: Vec<Event>,
}

/// Where the guest's word is.
pub const PLACE: NonZeroU64 = NonZeroU64::new(0x5000).unwrap();

impl Hardware for Machine {
    fn is_waiting(&self) -> bool {
        self.v_irq
    }
    fn offer(&mut self, vector: u8, unmasked: bool) {
        (self.v_irq, self.vector, self.unmasked) = (true, vector, unmasked);
    }
    fn withdraw(&mut self) {
        self.v_irq = false;
    }
    fn task_priority(&self) -> u8 {
        self.tpr
    }
    fn set_task_priority(&mut self, class: u8) {
        assert!(class < 16);
        self.tpr = class;
    }
    fn eoi_word(&self, place: NonZeroU64) -> bool {
        assert_eq!(place, PLACE);
        self.word
    }
    fn set_eoi_word(&mut self, place: NonZeroU64, promised: bool) {
        assert_eq!(place, PLACE);
        self.word = promised;
    }
    fn now(&self) -> u64 {
        self.clock
    }
    fn arm(&mut self, deadline: u64) {
        self.armed = deadline;
    }
    fn count(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Machine {
    /// What the CPU does in the guest when its interrupt flag is set.
    pub fn take(&mut self) -> Option<u8> {
        if !self.v_irq || !self.unmasked && self.vector >> 4 <= self.tpr {
            return None;
        }
        self.v_irq = false;
        Some(self.vector)
    }
}

/// The rest of the VM: it writes down what it is told.
pub struct Fabric {
    pub routes: Routes,
    pub posts: RefCell<Vec<(usize, u8, bool)>>,
    pub signals: RefCell<Vec<(usize, Signal)>>,
    pub broadcasts: RefCell<Vec<u8>>,
    pub acknowledged: RefCell<Vec<u8>>,
    /// What the 8259 asserts after the next acknowledge.
    pub next_from_8259: Cell<Option<u8>>,
}

impl Fabric {
    pub fn new(vcpus: usize) -> Self {
        Self {
            routes: Routes::new(vcpus),
            posts: RefCell::default(),
            signals: RefCell::default(),
            broadcasts: RefCell::default(),
            acknowledged: RefCell::default(),
            next_from_8259: Cell::new(None),
        }
    }
}

impl Bus for Fabric {
    fn routes(&self) -> &Routes {
        &self.routes
    }
    fn post(&self, vcpu: usize, vector: u8, level: bool) {
        self.posts.borrow_mut().push((vcpu, vector, level));
    }
    fn signal(&self, vcpu: usize, signal: Signal) {
        self.signals.borrow_mut().push((vcpu, signal));
    }
    fn end_of_interrupt(&self, vector: u8) {
        self.broadcasts.borrow_mut().push(vector);
    }
    fn acknowledge(&self, vector: u8) -> Option<u8> {
        self.acknowledged.borrow_mut().push(vector);
        self.next_from_8259.take()
    }
}

/// What happens to a vCPU and what its guest does.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// The guest sends itself an interrupt.
    SelfIpi(u8),
    /// Others send it interrupts at once, as a drained mailbox has them.
    Post(&'static [u8]),
    /// The guest ends the interrupt it handles, if it handles one: by its word if it may.
    End,
    /// The guest writes the EOI register though it could have used its word, or has nothing to end.
    EndByRegister,
    /// The guest sets its task priority by the register, or by CR8.
    Priority(u8),
    Cr8(u8),
    /// The guest sets or clears its interrupt flag.
    Flag(bool),
    /// The guest reads ISR, IRR and PPR.
    Observe,
    /// The guest turns paravirtual EOIs on or off.
    PvEoi(bool),
    /// The vCPU gets INIT, and is set up again.
    Init,
}

/// Vectors that are level-triggered, in all tests.
pub fn is_level(vector: u8) -> bool {
    vector & 0xf == 5
}

/// A vCPU.
pub struct World {
    pub lapic: Lapic,
    pub machine: Machine,
    pub fabric: Fabric,
    pub ideal: Reference,
    has_pv_eoi: bool,
    /// What the guest handles, the innermost last.
    pub handling: Vec<u8>,
    pub taken: Vec<u8>,
    pub exits: usize,
}

impl World {
    pub fn new(has_pv_eoi: bool) -> Self {
        let mut world = Self {
            lapic: Lapic::new(0, true),
            machine: Machine::default(),
            fabric: Fabric::new(1),
            ideal: Reference::new(),
            has_pv_eoi,
            handling: Vec::new(),
            taken: Vec::new(),
            exits: 0,
        };
        world.with(|lapic, cx| lapic.reset(cx));
        world.set_up();
        world
    }

    /// Runs `f` as an exit.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut Lapic, &mut Context<'_, Machine, Fabric>) -> R) -> R {
        self.exits += 1;
        f(&mut self.lapic, &mut Context { hardware: &mut self.machine, bus: &self.fabric })
    }

    fn write(&mut self, msr: u32, value: u64) {
        // As a light exit does.
        self.with(|lapic, cx| {
            let is_done = msr == 0x80b && value == 0 && lapic.try_x2apic_eoi(cx.hardware)
                || lapic.try_self_ipi_msr(cx.hardware, msr, value)
                || lapic.try_send_msr(cx, msr, value);
            if is_done { Ok(()) } else { lapic.write_msr(cx, msr, value) }
        })
        .expect("the guest keeps the rules");
    }

    fn read(&mut self, msr: u32) -> u32 {
        self.with(|lapic, cx| lapic.read_msr(cx, msr)).expect("the guest keeps the rules") as u32
    }

    /// What a guest does first: x2APIC, enabled, with its word.
    fn set_up(&mut self) {
        self.with(|lapic, cx| lapic.set_base(cx, 0xfee0_0d00, |_| false)).expect("there is an x2APIC");
        self.write(0x80f, 0x1ff);
        self.ideal.enabled = true;
        self.set_pv_eoi(true);
        self.exits = 0;
    }

    fn set_pv_eoi(&mut self, on: bool) {
        if self.has_pv_eoi {
            // The word is the guest's: it clears it before it names it.
            if self.lapic.pv_eoi() & 1 == 0 {
                self.machine.word = false;
            }
            let value = PLACE.get() | u64::from(on);
            self.with(|lapic, cx| lapic.set_pv_eoi(cx, value, NonZeroU64::new)).expect("the place is right");
        }
    }

    /// Does one thing, and then takes what there is to take, on both sides: they must agree.
    pub fn step(&mut self, op: Op) {
        match op {
            Op::SelfIpi(vector) => {
                self.write(0x83f, vector.into());
                self.ideal.accept(vector, false);
            }
            Op::Post(vectors) => {
                let mailbox = turnstile_vapic::Mailbox::new();
                let attention = turnstile_vm::attention::Attention::new();
                for vector in vectors {
                    let _ = mailbox.post(&attention, *vector, is_level(*vector));
                    self.ideal.accept(*vector, is_level(*vector));
                }
                self.with(|lapic, cx| lapic.drain(cx, &mailbox, attention.take()));
            }
            Op::End => self.end(),
            Op::EndByRegister => {
                self.write(0x80b, 0);
                self.ideal.end_of_interrupt();
                self.handling.pop();
            }
            Op::Priority(value) => {
                self.write(0x808, value.into());
                self.ideal.task_priority = value;
            }
            Op::Cr8(class) => {
                self.machine.tpr = class;
                self.ideal.task_priority = class << 4;
            }
            Op::Flag(on) => self.ideal.interrupt_flag = on,
            Op::Observe => self.observe(),
            Op::PvEoi(on) => self.set_pv_eoi(on),
            Op::Init => {
                self.with(|lapic, cx| lapic.init(cx));
                self.ideal.init();
                self.handling.clear();
                self.write(0x80f, 0x1ff);
                self.ideal.enabled = true;
                self.set_pv_eoi(true);
            }
        }
        self.take_all();
    }

    fn end(&mut self) {
        if self.handling.pop().is_none() {
            return;
        }
        if self.has_pv_eoi && core::mem::take(&mut self.machine.word) {
            // No exit.
        } else {
            self.write(0x80b, 0);
        }
        self.ideal.end_of_interrupt();
    }

    fn take_all(&mut self) {
        loop {
            let expected = self.ideal.take();
            let got = if self.ideal.interrupt_flag { self.machine.take() } else { None };
            assert_eq!(got, expected, "what the guest takes");
            let Some(vector) = got else { break };
            self.taken.push(vector);
            self.handling.push(vector);
        }
        assert_eq!(*self.fabric.broadcasts.borrow(), self.ideal.broadcasts);
    }

    fn observe(&mut self) {
        let seen: [u32; 16] = core::array::from_fn(|n| self.read(0x810 + (n as u32 / 8) * 16 + n as u32 % 8));
        assert_eq!(seen, self.ideal.registers(), "ISR and IRR");
        assert_eq!(self.read(0x80a) as u8, self.ideal.processor_priority(), "PPR");
        assert_eq!(self.read(0x808) as u8, self.ideal.task_priority, "TPR");
        self.check_rule();
    }

    /// The bit is set exactly when one interrupt is in service or offered, nothing else waits, and it is not
    /// level-triggered. Right after an exit that looked.
    pub fn check_rule(&self) {
        let registers = self.ideal.registers();
        let vectors = |words: &[u32]| {
            (0..256u32).filter(|v| words[*v as usize / 32] >> (v % 32) & 1 != 0).collect::<Vec<_>>()
        };
        let (serving, pending) = (vectors(&registers[..8]), vectors(&registers[8..]));
        let alone = match (&serving[..], &pending[..]) {
            ([one], []) | ([], [one]) => Some(*one as u8),
            _ => None,
        };
        let is_on = self.has_pv_eoi && self.lapic.pv_eoi() & 1 != 0;
        let expected = is_on && alone.is_some_and(|vector| !is_level(vector));
        if is_on {
            assert_eq!(self.machine.word, expected, "the bit: serving {serving:?}, pending {pending:?}");
        }
    }
}
