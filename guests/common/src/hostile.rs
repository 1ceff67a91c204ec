// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that attacks its hypervisor: which attacks it does, and what it says of them.
//!
//! Options: `attack=NAME` (several by commas, or a group's; all that are survivable by default), `stride=` (take each n-th
//! number only), `bare` (no hypervisor below), `list`. The fatal attacks, which are meant to end the machine, are only done by
//! name.

use core::fmt::{self, Write};

use crate::options;

/// What an attack counted.
#[derive(Default)]
pub struct Tally {
    /// Things tried.
    pub tried: u64,
    /// Of them, those that were refused: by an exception or a status.
    pub trapped: u64,
}

impl Tally {
    /// Counts one thing.
    pub fn add(&mut self, trapped: bool) {
        self.tried += 1;
        self.trapped += u64::from(trapped);
    }
}

/// An attack that is survived.
pub struct Attack {
    group: Option<&'static str>,
    name: &'static str,
    run: fn(&mut Tally),
}

impl Attack {
    /// Returns an attack with a name.
    pub const fn new(name: &'static str, run: fn(&mut Tally)) -> Self {
        Attack { group: None, name, run }
    }

    /// Returns an attack of a group: those of a group are done together by its name.
    pub const fn of(group: &'static str, name: &'static str, run: fn(&mut Tally)) -> Self {
        Attack { group: Some(group), name, run }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.group == Some(name)
    }
}

/// What is done around each attack.
pub struct Machine {
    /// Puts timers, interrupts and handlers back to rest.
    pub rest: fn(),
    /// Puts back what else an attack may have changed; before `rest`.
    pub put_back: fn(),
    /// Tries timer and interrupts.
    pub works: fn() -> bool,
}

/// Does the attacks that the command line selects, or lists all.
pub fn run(
    console: &mut impl Write,
    line: &str,
    machine: &Machine,
    attacks: &[Attack],
    fatal: &[(&str, fn())],
) {
    let _ = match options::find(line, "list") {
        Some(_) => list(console, attacks, fatal),
        None => attack(console, line, machine, attacks, fatal),
    };
}

fn list(console: &mut impl Write, attacks: &[Attack], fatal: &[(&str, fn())]) -> fmt::Result {
    for attack in attacks {
        match attack.group {
            Some(group) => writeln!(console, "@list {} {group}", attack.name)?,
            None => writeln!(console, "@list {}", attack.name)?,
        }
    }
    fatal.iter().try_for_each(|(name, _)| writeln!(console, "@list {name} fatal"))
}

fn attack(
    console: &mut impl Write,
    line: &str,
    machine: &Machine,
    attacks: &[Attack],
    fatal: &[(&str, fn())],
) -> fmt::Result {
    let wanted = options::find(line, "attack").unwrap_or("all");
    let mut done = 0;
    let is_wanted =
        |attack: &&Attack| wanted == "all" || wanted.split(',').any(|name| attack.is_called(name));
    for attack in attacks.iter().filter(is_wanted) {
        (machine.rest)();
        writeln!(console, "@attack {}", attack.name)?;
        let mut tally = Tally::default();
        (attack.run)(&mut tally);
        finish(console, machine, attack.name, &tally);
        done += 1;
    }
    for (name, run) in fatal.iter().filter(|(name, _)| wanted.split(',').any(|wanted| wanted == *name)) {
        (machine.rest)();
        writeln!(console, "@attack {name}")?;
        run();
        writeln!(console, "@error attack {name} was survived")?;
        done += 1;
    }
    end(console, done);
    Ok(())
}

/// Puts everything back, prints what an attack counted, and tries whether interrupts still work.
pub fn finish(console: &mut impl Write, machine: &Machine, name: &str, tally: &Tally) {
    (machine.put_back)();
    (machine.rest)();
    let _ = writeln!(console, "@attack {name} tried={} trapped={}", tally.tried, tally.trapped);
    if !(machine.works)() {
        let _ = writeln!(console, "@error interrupts do not work after {name}");
    }
    (machine.rest)();
}

/// Prints that so many attacks were survived, the last line of a run.
pub fn end(console: &mut impl Write, done: u32) {
    let _ = writeln!(console, "@done attacks={done} survived");
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    const ATTACKS: &[Attack] = &[
        Attack::new("holes", |tally| [true, false].into_iter().for_each(|trapped| tally.add(trapped))),
        Attack::of("places", "ports", |_| {}),
    ];

    fn said(line: &str, works: fn() -> bool) -> String {
        let mut text = String::new();
        let machine = Machine { rest: || {}, put_back: || {}, works };
        run(&mut text, line, &machine, ATTACKS, &[("jump", || {})]);
        text
    }

    #[test]
    fn attacks_are_selected_and_reported() {
        assert_eq!(said("list", || true), "@list holes\n@list ports places\n@list jump fatal\n");
        let holes = "@attack holes\n@attack holes tried=2 trapped=1\n";
        let ports = "@attack ports\n@attack ports tried=0 trapped=0\n";
        let broken = "@error interrupts do not work after ports\n";
        assert_eq!(said("", || true), [holes, ports, "@done attacks=2 survived\n"].concat());
        assert_eq!(said("attack=places", || false), [ports, broken, "@done attacks=1 survived\n"].concat());
        assert_eq!(
            said("attack=jump,holes", || true),
            [holes, "@attack jump\n@error attack jump was survived\n@done attacks=2 survived\n"].concat()
        );
    }
}
