// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An example of a service: a device that answers reads at offset 0 with random bytes, and at offset 8 with how often it did.
//! The generator is xoshiro256++, seeded with the time: good enough to show how a service works, and no source of keys.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use turnstile_service_rt::{Answer, Attach, Event, Service, service, time};

struct Entropy {
    state: [u64; 4],
    count: u64,
}

service!(Entropy);

impl Service for Entropy {
    const NEW: Self = Self { state: [0; 4], count: 0 };

    fn attach(&mut self, _: Attach) -> Answer {
        let mut seed = time();
        self.state = [(); 4].map(|()| split_mix(&mut seed));
        Answer::default()
    }

    fn event(&mut self, event: Event) -> Answer {
        let value = match event {
            Event::Read { offset: 0, .. } => self.next(),
            Event::Read { offset: 8, .. } => self.count,
            _ => 0,
        };
        Answer { value, ..Answer::default() }
    }
}

impl Entropy {
    fn next(&mut self) -> u64 {
        self.count += 1;
        let [a, b, c, d] = self.state;
        let (c_new, d_new) = (c ^ a, d ^ b);
        self.state = [a ^ d_new, b ^ c_new, c_new ^ b << 17, d_new.rotate_left(45)];
        a.wrapping_add(d).rotate_left(23).wrapping_add(a)
    }
}

/// SplitMix64, with which the authors of xoshiro seed it.
fn split_mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_has_another_value() {
        let mut entropy = Entropy::NEW;
        entropy.attach(Attach::default());
        let mut read = |offset| entropy.event(Event::Read { device: 0, offset, size: 8 }).value;
        let values = [read(0), read(0), read(0)];
        assert!(values[0] != values[1] && values[1] != values[2] && !values.contains(&0));
        assert_eq!((read(8), read(16)), (3, 0));
    }
}
