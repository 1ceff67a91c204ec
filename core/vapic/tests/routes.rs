// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is meant by a destination: the table against each vCPU's own view of each message, after random changes.

mod common;

use common::world::{Fabric, Machine};
use proptest::prelude::*;
use turnstile_vapic::{BROADCAST, Bus, Context, Delivery, Lapic, MAX_VCPUS, Message};

/// What a vCPU is, as its own APIC decides whether it is meant.
#[derive(Clone, Copy)]
struct View {
    index: u32,
    disabled: bool,
    x2apic: bool,
    ldr: u8,
    cluster: bool,
    accepting: bool,
}

impl View {
    fn is_meant(self, logical: bool, destination: u32) -> bool {
        if destination == BROADCAST {
            return true;
        }
        if !logical {
            return destination == self.index;
        }
        if self.disabled {
            false
        } else if self.x2apic {
            destination >> 16 == self.index >> 4 && destination >> (self.index & 15) & 1 != 0
        } else if destination > 0xff {
            false
        } else if self.cluster {
            destination as u8 >> 4 == self.ldr >> 4 && destination as u8 & self.ldr & 0xf != 0
        } else {
            destination as u8 & self.ldr != 0
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn finds_exactly_those_that_feel_meant(
        vcpus in prop_oneof![1usize..9, 60usize..70, Just(MAX_VCPUS)],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<(u8, u8)>()), 0..200),
        destinations in prop::collection::vec((any::<bool>(), any::<u32>(), 0u32..4), 1..50),
    ) {
        let fabric = Fabric::new(vcpus);
        let mut machine = Machine::default();
        let mut lapics: Vec<Lapic> = (0..vcpus).map(|n| Lapic::new(n, true)).collect();
        let mut views: Vec<View> = (0..vcpus as u32)
            .map(|index| View { index, disabled: false, x2apic: false, ldr: 0, cluster: false, accepting: false })
            .collect();
        let mut cx = Context { hardware: &mut machine, bus: &fabric };
        lapics.iter_mut().for_each(|lapic| lapic.reset(&mut cx));
        for (at, (act, value)) in changes {
            let at = at.index(vcpus);
            let (lapic, view) = (&mut lapics[at], &mut views[at]);
            match act % 8 {
                0 if view.x2apic || view.disabled => {}
                0 if lapic.set_base(&mut cx, 0xfee0_0c00, |_| true).is_ok() => view.x2apic = true,
                1 => {
                    prop_assert!(lapic.set_base(&mut cx, 0xfee0_0000, |_| true).is_ok());
                    *view = View { index: view.index, disabled: true, x2apic: false, ldr: 0, cluster: false,
                        accepting: false };
                }
                2 if lapic.set_base(&mut cx, 0xfee0_0800, |_| true).is_ok() => view.disabled = false,
                3 | 4 if lapic.page().is_some() => {
                    lapic.write_page(&mut cx, 0xd0, 4, u32::from(value) << 24);
                    view.ldr = value;
                }
                5 if lapic.page().is_some() => {
                    lapic.write_page(&mut cx, 0xe0, 4, if value & 1 != 0 { 0x0fff_ffff } else { !0 });
                    view.cluster = value & 1 != 0;
                }
                6 if lapic.page().is_some() => {
                    lapic.write_page(&mut cx, 0xf0, 4, if value & 1 != 0 { 0x1ff } else { 0xff });
                    view.accepting = value & 1 != 0;
                }
                7 => {
                    lapic.init(&mut cx);
                    *view = View { ldr: 0, cluster: false, accepting: false, ..*view };
                }
                _ => {}
            }
        }
        for (logical, destination, width) in destinations {
            let destination = destination >> [0, 12, 24, 28][width as usize];
            let meant: Vec<usize> = (0..vcpus).filter(|n| views[*n].is_meant(logical, destination)).collect();
            let mut found = Vec::new();
            fabric.routes.each(logical, destination, |vcpu| found.push(vcpu));
            found.sort_unstable();
            prop_assert_eq!(&found, &meant);

            // One of those that accept interrupts gets a lowest-priority message, always the same.
            let message =
                Message { vector: 0x51, delivery: Delivery::LowestPriority, logical, destination, level: false };
            fabric.deliver(&message);
            fabric.deliver(&message);
            let posts = fabric.posts.borrow_mut().split_off(0);
            if meant.iter().any(|n| views[*n].accepting) {
                prop_assert_eq!(posts.len(), 2);
                prop_assert_eq!(posts[0], posts[1]);
                prop_assert!(views[posts[0].0].accepting && meant.contains(&posts[0].0));
            } else {
                prop_assert!(posts.is_empty());
            }
        }
    }
}
