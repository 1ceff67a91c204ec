// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flat images for arm64, and the flash they may lie in: the guest `flash`, and Debian's U-Boot.

use turnstile_link::{Command, StopReason};

use super::scenario::{Ending, Scenario, Step, guest};

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let (virt, kvmtool) = (
        ["@flash erased banks=2 failures=0", "@flash kept banks=2 failures=0"],
        ["@flash erased banks=1 failures=0", "@flash kept banks=1 failures=0"],
    );
    vec![
        flash("virt", "cmdline = \"load=0x40200000\"", virt),
        flash("kvmtool", "load-address = 0x8040_0000\ncmdline = \"load=0x80400000\"", kvmtool),
        u_boot(),
    ]
}

/// A flat image finds its flash erased, as it left it after a reset, and erased again when it was stopped in between.
fn flash(machine: &str, more: &str, [erased, kept]: [&'static str; 2]) -> Scenario {
    let flat = format!("machine = \"{machine}\"\nformat = \"flat\"\nflash = \"2MiB\"\n{more}");
    // The other one keeps the machine on.
    let config = guest("flash", "flash", "8MiB", &flat) + &guest("echo", "echo", "8MiB", "");
    let life = [
        Step::Expect(0, erased),
        Step::Stopped(0, StopReason::Reset),
        Step::Expect(0, kept),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    let steps = [&life[..], &[Step::Tell(Command::Restart { vm: 0 })], &life].concat();
    Scenario::new(format!("flat/{machine}"), config, steps).ending(Ending::Poweroff)
}

/// U-Boot in flash and U-Boot in RAM come to their prompts, and find after a reset what each has saved.
fn u_boot() -> Scenario {
    let vm = |name: &str, more: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\nkernel = \"debian:u-boot\"\nmemory = \"64MiB\"\nformat = \"flat\"\n\
             flash = \"2MiB\"\n{more}\n"
        )
    };
    let config = vm("in-flash", "load-address = 0") + &vm("in-ram", "load-address = 0x4020_0000");
    let answers = [
        ("setenv answer 42; saveenv\r", "echo kept-${answer}; poweroff\r", "kept-42"),
        ("setenv answer 23; saveenv\r", "echo kept-${answer}; poweroff\r", "kept-23"),
    ];
    let prompt =
        |vm| [Step::Expect(vm, "Hit any key to stop autoboot"), Step::Type(vm, " "), Step::Expect(vm, "=> ")];
    let mut steps = Vec::new();
    for (vm, (save, _, _)) in (0..).zip(answers) {
        steps.extend(prompt(vm));
        steps.extend([
            Step::Type(vm, save),
            Step::Expect(vm, "Erased"),
            Step::Expect(vm, "OK"),
            Step::Expect(vm, "=> "),
            Step::Type(vm, "reset\r"),
            Step::Started(vm, 2),
        ]);
    }
    for (vm, (_, show, shown)) in (0..).zip(answers) {
        steps.push(Step::Expect(vm, "Loading Environment from Flash... OK"));
        steps.extend(prompt(vm));
        steps.extend([
            Step::Type(vm, show),
            Step::Expect(vm, shown),
            Step::Stopped(vm, StopReason::PowerOff),
        ]);
    }
    Scenario::new("uboot/prompt", config, steps)
}
