// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MSI-X against what it must do for each single vector: a message goes out at once, or later, once.

use proptest::prelude::*;
use turnstile_pci::msix::{Control, Message, Msix};

const VECTORS: usize = 67;

#[derive(Clone, Copy, Debug)]
enum Step {
    Trigger(u16),
    Write { offset: u64, size: u8, value: u64 },
    Control(Control),
    Withdraw(u16),
}

fn step() -> impl Strategy<Value = Step> {
    // Few vectors, so that they meet.
    let vector = prop_oneof![4 => 0u16..3, 1 => 64u16..70];
    let write = (0u64..1100, prop_oneof![2 => Just(4u8), 1 => Just(8u8), 1 => 0u8..9], any::<u64>());
    let mask = (vector.clone(), 0u64..2).prop_map(|(vector, value)| Step::Write {
        offset: 16 * u64::from(vector) + 12,
        size: 4,
        value,
    });
    prop_oneof![
        4 => vector.clone().prop_map(Step::Trigger),
        4 => mask,
        2 => write.prop_map(|(offset, size, value)| Step::Write { offset, size, value }),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(enabled, masked)| Step::Control(Control { enabled, masked })),
        1 => vector.prop_map(Step::Withdraw),
    ]
}

/// What is known of a vector without any table: its four dwords, and whether it waits.
#[derive(Clone, Copy, Default)]
struct Vector {
    dwords: [u32; 4],
    waits: bool,
}

struct Ideal {
    vectors: Vec<Vector>,
    control: Control,
}

impl Ideal {
    /// Everything that may go out does.
    fn flush(&mut self) -> Vec<Message> {
        let goes = self.control.enabled && !self.control.masked;
        let mut out = Vec::new();
        for vector in
            self.vectors.iter_mut().filter(|vector| goes && vector.waits && vector.dwords[3] & 1 == 0)
        {
            vector.waits = false;
            let address = u64::from(vector.dwords[1]) << 32 | u64::from(vector.dwords[0] & !3);
            out.push(Message { address, data: vector.dwords[2] });
        }
        out
    }

    fn step(&mut self, step: Step) -> Vec<Message> {
        match step {
            Step::Trigger(vector) => {
                if let (true, Some(vector)) =
                    (self.control.enabled, self.vectors.get_mut(usize::from(vector)))
                {
                    vector.waits = true;
                }
            }
            Step::Write { offset, size, value } if matches!(size, 4 | 8) && offset % u64::from(size) == 0 => {
                for word in 0..u64::from(size) / 4 {
                    let at = (offset / 4 + word) as usize;
                    if let Some(vector) = self.vectors.get_mut(at / 4) {
                        vector.dwords[at % 4] = (value >> (32 * word)) as u32;
                    }
                }
            }
            Step::Write { .. } => {}
            Step::Control(control) => self.control = control,
            Step::Withdraw(vector) => {
                if let Some(vector) = self.vectors.get_mut(usize::from(vector)) {
                    vector.waits = false;
                }
            }
        }
        self.flush()
    }
}

proptest! {
    #[test]
    fn each_event_goes_out_once_and_not_while_it_is_masked(steps in prop::collection::vec(step(), 1..80)) {
        let mut msix: Msix<VECTORS> = Msix::new();
        let masked = Vector { dwords: [0, 0, 0, 1], waits: false };
        let mut ideal = Ideal { vectors: vec![masked; VECTORS], control: Control::default() };
        let mut control = Control::default();
        for step in steps {
            let mut out = Vec::new();
            match step {
                Step::Trigger(vector) => out.extend(msix.trigger(vector, control)),
                Step::Write { offset, size, value } => out.extend(msix.write_table(offset, size, value, control)),
                Step::Control(new) => {
                    control = new;
                    msix.settle(control, |message| out.push(message));
                }
                Step::Withdraw(vector) => msix.withdraw(vector),
            }
            prop_assert_eq!(out, ideal.step(step));
            for (at, vector) in (0u64..).zip(&ideal.vectors) {
                let dwords = vector.dwords;
                let read = [0, 4, 8, 12].map(|offset| msix.read_table(16 * at + offset, 4) as u32);
                prop_assert_eq!(read, [dwords[0] & !3, dwords[1], dwords[2], dwords[3] & 1]);
                let word = msix.read_pending(at / 64 * 8, 8);
                prop_assert_eq!(word >> (at % 64) & 1 != 0, vector.waits);
            }
        }
    }
}

#[test]
fn only_aligned_accesses_of_four_and_eight_bytes_are_defined() {
    let mut msix: Msix<2> = Msix::new();
    let control = Control { enabled: true, masked: false };
    assert_eq!(msix.write_table(0, 8, 0x1_fee0_0003, control), None);
    assert_eq!(msix.write_table(8, 8, 0x25, control), None);
    assert_eq!(msix.read_table(0, 8), 0x1_fee0_0000);
    for (offset, size) in
        [(0, 1), (1, 4), (4, 8), (2, 2), (0, 0), (0, 16), (u64::MAX, 4), (u64::MAX - 7, 8), (32, 4)]
    {
        assert_eq!(msix.read_table(offset, size), 0, "{offset:#x} {size}");
        assert_eq!(msix.read_pending(offset, size), 0, "{offset:#x} {size}");
        assert_eq!(msix.write_table(offset, size, u64::MAX, control), None, "{offset:#x} {size}");
    }
    assert_eq!(msix.trigger(0, control), Some(Message { address: 0x1_fee0_0000, data: 0x25 }));
    assert_eq!(msix.trigger(1, control), None);
    assert_eq!((msix.read_pending(0, 4), msix.read_pending(4, 4)), (2, 0));
    msix.reset();
    assert_eq!((msix.read_pending(0, 8), msix.read_table(12, 4)), (0, 1));
}
