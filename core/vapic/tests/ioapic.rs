// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O APIC against one written down pin by pin from the data sheet, over random histories; and level-triggered
//! interrupts through both APICs.

mod common;

use common::world::World;
use proptest::prelude::*;
use turnstile_vapic::{BROADCAST, Bus, Delivery, IOAPIC_PINS, IoApic, Message};

/// One pin, with a field for each thing the data sheet names.
#[derive(Clone, Copy, Default)]
struct Pin {
    low: u32,
    high: u32,
    remote_irr: bool,
    asserted: bool,
}

impl Pin {
    fn is_level(self) -> bool {
        self.low & 1 << 15 != 0
    }
    fn is_masked(self) -> bool {
        self.low & 1 << 16 != 0
    }
    fn message(self) -> Message {
        let delivery = [
            Delivery::Fixed,
            Delivery::LowestPriority,
            Delivery::Smi,
            Delivery::Reserved,
            Delivery::Nmi,
            Delivery::Init,
            Delivery::Reserved,
            Delivery::External,
        ][(self.low >> 8 & 7) as usize];
        let id = self.high >> 24 | (self.high >> 17 & 0x7f) << 8;
        Message {
            vector: self.low as u8,
            delivery,
            logical: self.low & 1 << 11 != 0,
            destination: if id == 0xff { BROADCAST } else { id },
            level: self.is_level(),
        }
    }
    /// Sends for a level, once per end.
    fn level(&mut self, sent: &mut Vec<Message>) {
        if self.is_level() && !self.is_masked() && self.asserted && !self.remote_irr {
            let message = self.message();
            self.remote_irr = matches!(message.delivery, Delivery::Fixed | Delivery::LowestPriority);
            sent.push(message);
        }
    }
}

struct Ideal([Pin; IOAPIC_PINS]);

impl Ideal {
    fn line(&mut self, pin: usize, asserted: bool, sent: &mut Vec<Message>) {
        let pin = &mut self.0[pin];
        let rises = asserted && !pin.asserted;
        pin.asserted = asserted;
        if rises && !pin.is_level() && !pin.is_masked() {
            sent.push(pin.message());
        }
        pin.level(sent);
    }
    fn write(&mut self, at: usize, value: u32, sent: &mut Vec<Message>) {
        let pin = &mut self.0[at / 2];
        if at.is_multiple_of(2) {
            pin.low = value & 0x1_afff;
        } else {
            pin.high = value & 0xfffe_0000;
        }
        pin.remote_irr &= pin.is_level();
        pin.level(sent);
    }
    fn read(&self, at: usize) -> u32 {
        let pin = self.0[at / 2];
        if at.is_multiple_of(2) { pin.low | u32::from(pin.remote_irr) << 14 } else { pin.high }
    }
    fn end(&mut self, vector: u8, sent: &mut Vec<Message>) {
        for pin in &mut self.0 {
            if pin.remote_irr && pin.low as u8 == vector {
                pin.remote_irr = false;
                pin.level(sent);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn sends_what_the_data_sheet_says(
        steps in prop::collection::vec((0u8..10, 0usize..4, any::<u32>(), any::<bool>()), 1..80)
    ) {
        let mut ioapic = IoApic::new();
        let mut ideal = Ideal([Pin { low: 1 << 16, ..Pin::default() }; IOAPIC_PINS]);
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for (act, pin, value, flag) in steps {
            // Two vectors, so that pins share them; mostly fixed delivery.
            let value = value & if act & 1 == 0 { 0xffff_f8ff } else { !0 } & 0xffff_ff01 | 0x30;
            match act {
                0..4 => {
                    ioapic.set_line(pin, flag, |message| sent.push(*message));
                    ideal.line(pin, flag, &mut expected);
                }
                4..8 => {
                    let at = pin * 2 + usize::from(flag);
                    ioapic.write(0, 0x10 + at as u32, |_| unreachable!());
                    ioapic.write(0x10, value, |message| sent.push(*message));
                    ideal.write(at, value, &mut expected);
                }
                8 => {
                    ioapic.end_of_interrupt(value as u8, |message| sent.push(*message));
                    ideal.end(value as u8, &mut expected);
                }
                _ => {
                    ioapic.write(0x40, value, |message| sent.push(*message));
                    ideal.end(value as u8, &mut expected);
                }
            }
            prop_assert_eq!(&sent, &expected);
            for at in 0..8 {
                ioapic.write(0, 0x10 + at as u32, |_| unreachable!());
                prop_assert_eq!(ioapic.read(0x10), ideal.read(at));
            }
        }
    }

    /// Devices hold their lines until the guest has served them. However their requests meet, each is served, the
    /// guest is not interrupted for nothing more often than by shared vectors, and all is quiet in the end.
    #[test]
    fn level_triggered_requests_are_all_served(
        steps in prop::collection::vec((0usize..3, 0u8..8), 1..80),
        has_pv_eoi in any::<bool>(),
    ) {
        let mut world = World::new(has_pv_eoi);
        let mut ioapic = IoApic::new();
        for pin in 0..3u32 {
            ioapic.write(0, 0x10 + pin * 2, |_| {});
            // Pins 1 and 2 share a vector.
            ioapic.write(0x10, 1 << 15 | [0x35, 0x45, 0x45][pin as usize], |_| {});
        }
        let (mut wants, mut served) = ([false; 3], 0);
        let mut requests = 0;
        let close = (0..8).map(|n| (n % 3, 4)).chain((0..8).map(|n| (n % 3, 6)));
        for (pin, act) in steps.into_iter().chain(close) {
            let lapic_ends = world.fabric.broadcasts.borrow_mut().split_off(0);
            for vector in lapic_ends {
                ioapic.end_of_interrupt(vector, |message| world.fabric.deliver(message));
            }
            match act {
                0 | 1 => {
                    requests += u32::from(!wants[pin]);
                    wants[pin] = true;
                    ioapic.set_line(pin, true, |message| world.fabric.deliver(message));
                }
                2 => world.with(|lapic, cx| lapic.write_msr(cx, 0x83f, 0x45)).expect("self-IPI"),
                3.. => {
                    // The guest serves what it was interrupted for, and ends it.
                    while let Some(vector) = world.machine.take() {
                        world.handling.push(vector);
                    }
                    if let Some(vector) = world.handling.pop() {
                        for pin in if vector == 0x35 { 0..1 } else { 1..3 } {
                            served += u32::from(core::mem::take(&mut wants[pin]));
                            ioapic.set_line(pin, false, |message| world.fabric.deliver(message));
                        }
                        if !has_pv_eoi || !core::mem::take(&mut world.machine.word) {
                            world.with(|lapic, cx| lapic.write_msr(cx, 0x80b, 0)).expect("EOI");
                        }
                    }
                }
            }
            let posts = world.fabric.posts.borrow_mut().split_off(0);
            let mailbox = turnstile_vapic::Mailbox::new();
            let attention = turnstile_vm::attention::Attention::new();
            for (vcpu, vector, level) in posts {
                prop_assert_eq!(vcpu, 0);
                let _ = mailbox.post(&attention, vector, level);
            }
            world.with(|lapic, cx| lapic.drain(cx, &mailbox, attention.take()));
        }
        for vector in world.fabric.broadcasts.take() {
            ioapic.end_of_interrupt(vector, |message| panic!("nobody asks for {message:?}"));
        }
        prop_assert_eq!(served, requests);
        prop_assert!(world.handling.is_empty() && world.machine.take().is_none());
        for pin in 0..3u32 {
            ioapic.write(0, 0x10 + pin * 2, |_| {});
            prop_assert_eq!(ioapic.read(0x10) & 1 << 14, 0, "remote IRR of pin {} is set for ever", pin);
        }
    }
}

#[test]
fn identifies_itself() {
    let mut ioapic = IoApic::new();
    ioapic.write(0, 1, |_| {});
    assert_eq!(ioapic.read(0x10), 0x17_0020);
    ioapic.write(0, 0, |_| {});
    ioapic.write(0x10, 0xffff_ffff, |_| {});
    assert_eq!(ioapic.read(0x10), 0x0f00_0000);
    for select in 0..=0xffu32 {
        ioapic.write(0, select, |_| {});
        for offset in 0..0x1000 {
            ioapic.read(offset);
        }
        ioapic.write(0x10, !0, |_| {});
    }
}
