// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service that does what it must not do, for tests. Its device has these registers of eight bytes:
//!
//! | offset | read | write |
//! |---|---|---|
//! | 0 | how many deeds it has begun; kept over a crash | does the deed of this number |
//! | 8, 16 | the arguments | sets them; kept over a crash |
//! | 24 | what the last deed returned | |
//! | 32 | 1 if what is kept was from before a crash | |
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use turnstile_service_rt::{Answer, Attach, Characters, Event, Service, alarm, deeds, kept, print, service};

kept! {
    /// The deeds begun, and the arguments.
    static KEPT: Kept<3>;
}

struct Misbehave {
    /// What the last deed returned.
    result: u64,
    kept: bool,
}

service!(Misbehave);

impl Service for Misbehave {
    const NEW: Self = Self { result: 0, kept: false };

    fn attach(&mut self, Attach { kept, .. }: Attach) -> Answer {
        self.kept = kept;
        Answer::default()
    }

    fn event(&mut self, event: Event) -> Answer {
        let value = match event {
            Event::Read { offset: 24, .. } => self.result,
            Event::Read { offset: 32, .. } => self.kept.into(),
            Event::Read { offset, .. } => KEPT.get((offset / 8) as usize),
            Event::Write { offset: 0, value, .. } => {
                KEPT.set(0, KEPT.get(0) + 1);
                self.result = self.misdeed(value, KEPT.get(1), KEPT.get(2));
                0
            }
            Event::Write { offset: offset @ (8 | 16), value, .. } => {
                KEPT.set((offset / 8) as usize, value);
                0
            }
            _ => 0,
        };
        Answer { value, ..Answer::default() }
    }
}

impl Misbehave {
    fn misdeed(&mut self, number: u64, first: u64, second: u64) -> u64 {
        match number {
            1 => return deeds::read(first),
            2 => deeds::write(first, second),
            3 => deeds::jump(first),
            4 => deeds::stack(first),
            5 => return deeds::instruction(first).into(),
            6 => return deeds::call([first, second, u64::MAX, 17, u64::MAX, 1 << 63]),
            7 => deeds::spin(),
            8 => return deeds::overflow(0),
            9 => panic!("asked to, with {first:#x}"),
            // Its own code; its own data; and whatever its stack has.
            10 => deeds::write(deeds::code(), 0),
            11 => deeds::jump(core::ptr::from_ref(self) as u64),
            12 => deeds::jump(core::ptr::from_ref(&number) as u64),
            13 => loop {
                print(Characters { count: 1, words: [b'.'.into(), 0] });
            },
            14 => loop {
                alarm(0);
            },
            // Does no harm when it is tried again, because that was a crash.
            15 if !self.kept => deeds::write(deeds::code(), 0),
            16 => return deeds::shown(first, second),
            17 => return deeds::place(first),
            18 => return deeds::vectors(first, second),
            // It has them when it crashes.
            19 => {
                deeds::vectors(first, second);
                deeds::jump(first);
            }
            20 => loop {
                deeds::vectors(first, second);
            },
            _ => {}
        }
        0
    }
}
