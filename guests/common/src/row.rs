// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frame of a row in which a driver operates a device: `row=` on the command line names it, and the first thing that goes wrong ends it.

use core::cell::RefCell;
use core::fmt::Write;

use crate::virtio::ring::Wrong;
use crate::{bench, options};

/// A driver whose operations are measured.
pub trait Driver {
    /// Does what is measured.
    fn operate(&mut self) -> Result<(), Wrong>;

    /// What follows each time, without the device. The empty loop does it, too.
    fn pause(&mut self) {}

    /// How many operations of the row it does at once, which are at least one.
    fn at_once(&self) -> u64 {
        1
    }
}

/// A driver, and what went wrong.
struct State<D> {
    driver: D,
    done: Result<(), Wrong>,
}

/// Has the row measured that the command line names.
pub fn run<W: Write>(console: &mut W, measure: impl FnOnce(&mut W, &str) -> Result<(), Wrong>) {
    let done = options::get("row").ok_or("no row is named").and_then(|row| measure(console, row));
    end(console, done);
}

/// Says what went wrong.
pub fn end(console: &mut impl Write, done: Result<(), Wrong>) {
    if let Err(what) = done {
        let _ = writeln!(console, "@error {what}");
    }
}

/// Measures a row. Returns the driver, unless something went wrong.
pub fn measure<D: Driver>(row: &str, driver: D) -> Result<D, Wrong> {
    let state = RefCell::new(State { driver, done: Ok(()) });
    let at_once = state.borrow().driver.at_once();
    bench::measure(
        row,
        |rounds| (0..rounds.div_ceil(at_once)).for_each(|_| operate(&mut state.borrow_mut())),
        |rounds| (0..rounds.div_ceil(at_once)).for_each(|_| state.borrow_mut().driver.pause()),
    );
    let State { driver, done } = state.into_inner();
    done.map(|()| driver)
}

/// Operates once, if nothing went wrong before.
#[inline(never)] // All of them ring at one place, by which the meter knows them.
fn operate<D: Driver>(State { driver, done }: &mut State<D>) {
    *done = done.and_then(|()| driver.operate());
    driver.pause();
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    /// Breaks at its third operation.
    #[derive(Default)]
    struct Fragile {
        operations: u64,
        pauses: u64,
    }

    impl Driver for Fragile {
        fn operate(&mut self) -> Result<(), Wrong> {
            self.operations += 1;
            if self.operations < 3 { Ok(()) } else { Err("it is broken") }
        }

        fn pause(&mut self) {
            self.pauses += 1;
        }
    }

    #[test]
    fn nothing_is_done_behind_what_went_wrong() {
        let mut state = State { driver: Fragile::default(), done: Ok(()) };
        (0..5).for_each(|_| operate(&mut state));
        assert_eq!(state.done, Err("it is broken"));
        assert_eq!((state.driver.operations, state.driver.pauses), (3, 5));
    }

    #[test]
    fn operations_that_are_done_at_once_are_as_many() {
        struct Pairs(u64);

        impl Driver for Pairs {
            fn operate(&mut self) -> Result<(), Wrong> {
                self.0 += 2;
                Ok(())
            }

            fn at_once(&self) -> u64 {
                2
            }
        }

        let driver = measure("sleep-wake", Pairs(0));
        assert_eq!(driver.map(|Pairs(operations)| operations), Ok(bench::WARM_UP + bench::ITERATIONS));
    }

    #[test]
    fn what_went_wrong_is_said() {
        let mut text = String::new();
        end(&mut text, Ok(()));
        end(&mut text, Err("it is broken"));
        assert_eq!(text, "@error it is broken\n");
    }
}
