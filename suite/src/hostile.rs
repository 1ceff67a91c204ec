// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest cannot do to others, on each architecture: whatever it tries ends as a fault of its own, or as a stop of its
//! VM, and the VM beside it does not notice.

use turnstile::isa::Isa;
use turnstile_link::{Command, StopReason};

use super::scenario::{Record, Scenario, Step, guest};
use super::victims::{beacon, beacons_are_good};

/// The memory of the VM beside the hostile one.
const BESIDE: &str = "16MiB";

/// The configuration of a hostile guest with these lines, beside beacons with these options.
pub fn beside(memory: &str, more: &str, beacons: &str) -> String {
    guest("hostile", "hostile", memory, more) + &beacon(BESIDE, beacons)
}

/// A group of attacks that leave the guest able to go on.
pub fn survived(isa: Isa, name: impl Into<String>, config: String) -> Scenario {
    let steps =
        vec![Step::Expect(0, "@done attacks="), Step::Expect(0, "survived"), Step::Expect(1, "@done")];
    Scenario::at(isa, name, config, steps)
}

/// The guest found nothing wrong, and the VM beside it did not notice.
pub fn found_nothing(record: &Record) -> Result<(), String> {
    match record.console(0).contains("@error") || record.console(0).contains("attacks=0 ") {
        true => Err("the guest found something wrong".to_owned()),
        false => beacons_are_good(record),
    }
}

/// An attack after which the guest spins, faults or waits for ever: it is stopped by command, as a user would. `more` are
/// whole lines of its table.
///
/// Not counted: a guest that takes one exception after the other without executing an instruction lets counted time stand
/// still for everybody.
pub fn for_ever(isa: Isa, attack: &str, memory: &str, more: &str) -> Scenario {
    let config = beside(memory, &format!("{more}cmdline = \"attack={attack}\""), "count=50");
    let steps = vec![
        Step::Expect(1, "@done beacons="),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::at(isa, format!("hostile/{attack}"), config, steps).judge(beacons_are_good)
}
