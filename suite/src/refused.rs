// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What hypervisors of all architectures refuse, in a sentence, and how they report faults of their own.

use std::fs;
use std::path::Path;

use turnstile::failure::{Context, Result};
use turnstile::isa::Isa;
use turnstile::qemu::Boot;

use super::scenario::{Ending, Scenario, Step, guest};

/// The last that a hypervisor says of a fault.
pub const RESET: &str = "resetting the machine";

/// Changes what is booted; gets the folder of the bundle.
type Prepare = fn(&mut Boot, &Path) -> Result<()>;

/// The configuration of the VM that does not start; `more` are further lines of its table.
pub fn echo(isa: Isa, more: &str) -> String {
    let memory = if isa == Isa::Arm64 { "8MiB" } else { "16MiB" };
    guest("echo", "echo", memory, more)
}

/// What is refused when it boots.
pub fn refuse(isa: Isa, name: &str, text: &'static str, prepare: Prepare) -> Scenario {
    let scenario = Scenario::at(isa, format!("refusal/{name}"), echo(isa, ""), vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(prepare).limit(60)
}

/// Bundles that are none.
pub fn damaged(isa: Isa) -> [Scenario; 4] {
    [
        refuse(isa, "flipped-byte-in-an-image", "damaged: image 0", |boot, folder| {
            change(boot, folder, |bytes| flip_in_image(bytes))
        }),
        refuse(isa, "truncated-bundle", "truncated", |boot, folder| {
            change(boot, folder, |bytes| bytes.truncate(bytes.len() / 2))
        }),
        refuse(isa, "not-a-bundle", "no bundle", |boot, folder| {
            change(boot, folder, |bytes| *bytes = b"#!/bin/sh\n".repeat(1000))
        }),
        refuse(isa, "no-bundle", "no bundle", |boot, _| {
            boot.bundle = None;
            Ok(())
        }),
    ]
}

/// The bundle of a machine with more CPUs than this one has.
pub fn too_few_cpus(isa: Isa) -> Scenario {
    let scenario =
        Scenario::at(isa, "refusal/too-few-cpus", echo(isa, "cpus = [3]"), vec![Step::Text("CPU")]);
    scenario.ending(Ending::Refused).limit(60).prepare(|boot, folder| {
        boot.cpus = 1;
        change(boot, folder, |_| {})
    })
}

/// A fault that the hypervisor's command line provokes: reported with registers and backtrace, then a reset.
pub fn fault(isa: Isa, kind: &str, texts: &[&'static str]) -> Scenario {
    let steps = texts.iter().copied().map(Step::Text).collect();
    let scenario = Scenario::at(isa, format!("fault/{kind}"), echo(isa, ""), steps);
    let provoke: Prepare = match kind {
        "write-to-code" => |boot, _| provoke(boot, "write-to-code"),
        "run-data" => |boot, _| provoke(boot, "run-data"),
        "stack-overflow" => |boot, _| provoke(boot, "stack-overflow"),
        "read-guest" => |boot, _| provoke(boot, "read-guest"),
        _ => |boot, _| provoke(boot, "panic"),
    };
    scenario.ending(Ending::Refused).prepare(provoke).limit(60)
}

/// A panic.
pub fn panic(isa: Isa) -> Scenario {
    fault(isa, "panic", &["panicked at", "provoked", "backtrace", RESET])
}

/// Has the hypervisor fault at boot, with its line in plain text: as a frame the fault would end the scenario.
fn provoke(boot: &mut Boot, kind: &str) -> Result<()> {
    boot.append = format!("link=plain provoke={kind}");
    Ok(())
}

/// Boots a changed copy of the bundle.
pub fn change(boot: &mut Boot, folder: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let original = boot.bundle.clone().unwrap_or_default();
    let mut bytes = fs::read(&original).context(|| format!("cannot read {}", original.display()))?;
    edit(&mut bytes);
    let file = folder.join("bundle.changed");
    fs::write(&file, bytes).context(|| format!("cannot write {}", file.display()))?;
    boot.bundle = Some(file);
    Ok(())
}

/// Flips a bit in the middle, which is in the kernel.
fn flip_in_image(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
}
