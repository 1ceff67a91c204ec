// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor refuses, in a sentence, and how it reports faults of its own.

use std::fs;
use std::path::Path;

use super::scenario::{Ending, Scenario, Step, guest};
use crate::failure::{Context, Result};
use crate::qemu::Boot;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let refuse = |name: &str, text: &'static str, prepare| {
        let config = guest("echo", "echo", "8MiB", "");
        let scenario = Scenario::new(format!("refusal/{name}"), config, vec![Step::Text(text)]);
        scenario.ending(Ending::Refused).prepare(prepare).limit(60)
    };
    let mut scenarios = vec![
        refuse("flipped-byte-in-an-image", "damaged: image 0", |boot, folder| {
            change(boot, folder, |bytes| flip_in_image(bytes))
        }),
        refuse("flipped-byte-in-the-description", "damaged: the description", |boot, folder| {
            change(boot, folder, |bytes| flip_in_name(bytes))
        }),
        refuse("truncated-bundle", "truncated", |boot, folder| {
            change(boot, folder, |bytes| bytes.truncate(bytes.len() / 2))
        }),
        refuse("not-a-bundle", "no bundle", |boot, folder| {
            change(boot, folder, |bytes| *bytes = b"#!/bin/sh\n".repeat(1000))
        }),
        refuse("no-bundle", "no bundle", |boot, _| {
            boot.bundle = None;
            Ok(())
        }),
        refuse("started-at-el1", "EL1", |boot, _| {
            boot.virtualization = false;
            Ok(())
        }),
        refuse("vhe-on-a-cpu-without", "which mode=vhe asks for", |boot, _| {
            boot.cpu = "cortex-a57".to_owned();
            boot.append.push_str(" mode=vhe");
            Ok(())
        }),
        refuse("ablation-without-vhe", "an image for ablation needs a CPU with", |boot, _| {
            boot.append.push_str(" mode=nvhe");
            Ok(())
        })
        .without("none"),
        refuse("too-few-cpus", "CPU", |boot, folder| {
            // The bundle of a machine with more CPUs than this one has.
            boot.cpus = 1;
            change(boot, folder, |_| {})
        })
        .with_config(guest("echo", "echo", "8MiB", "cpus = [3]")),
        too_little_memory(),
        fault("panic", vec!["panicked at", "provoked", "backtrace", RESET]),
        read_guest(),
    ];
    scenarios.extend(protections());
    scenarios
}

/// What the hypervisor's own translation tables forbid it.
pub fn protections() -> [Scenario; 3] {
    [
        fault("write-to-code", vec![EXCEPTION, PERMISSION_FAULT_ON_WRITE, RESET]),
        fault("run-data", vec![EXCEPTION, PERMISSION_FAULT_ON_FETCH, RESET]),
        fault("stack-overflow", vec![EXCEPTION, TRANSLATION_FAULT_ON_WRITE, "backtrace", RESET]),
    ]
}

const EXCEPTION: &str = "synchronous exception in the hypervisor on CPU 0";
/// ESR_EL2: a data abort at EL2, write, permission fault at level 3.
const PERMISSION_FAULT_ON_WRITE: &str = "ESR_EL2 0x9600004f";
/// An instruction abort at EL2, permission fault at level 3.
const PERMISSION_FAULT_ON_FETCH: &str = "ESR_EL2 0x8600000f";
/// A data abort at EL2, write, translation fault at level 3: the guard page is not mapped.
const TRANSLATION_FAULT_ON_WRITE: &str = "ESR_EL2 0x96000047";
/// A data abort at EL2, read, translation fault at level 2: nothing of the 2 MiB is mapped.
const TRANSLATION_FAULT_ON_READ: &str = "ESR_EL2 0x96000006";
const RESET: &str = "resetting the machine";

/// A fault that the hypervisor's command line provokes: reported with registers and backtrace, then a reset.
fn fault(kind: &str, texts: Vec<&'static str>) -> Scenario {
    let config = guest("echo", "echo", "8MiB", "");
    let steps = texts.into_iter().map(Step::Text).collect();
    let scenario = Scenario::new(format!("fault/{kind}"), config, steps).ending(Ending::Refused).limit(60);
    match kind {
        "write-to-code" => scenario.prepare(|boot, _| provoke(boot, "write-to-code")),
        "run-data" => scenario.prepare(|boot, _| provoke(boot, "run-data")),
        "stack-overflow" => scenario.prepare(|boot, _| provoke(boot, "stack-overflow")),
        _ => scenario.prepare(|boot, _| provoke(boot, "panic")),
    }
}

/// A read of a guest's memory while the guest runs on another CPU: EL2 does not map it.
fn read_guest() -> Scenario {
    let scenario = fault("read-guest", vec![EXCEPTION, TRANSLATION_FAULT_ON_READ, "backtrace", RESET]);
    scenario.prepare(|boot, _| provoke(boot, "read-guest")).with_config(guest(
        "echo",
        "echo",
        "8MiB",
        "cpus = [1]",
    ))
}

/// Has the hypervisor fault at boot, with its line in plain text: as a frame the fault would end the scenario.
pub fn provoke(boot: &mut Boot, kind: &str) -> Result<()> {
    boot.append = format!("link=plain provoke={kind}");
    Ok(())
}

/// The machine has less memory than the VM wants: that VM does not start, and the others would.
fn too_little_memory() -> Scenario {
    let config = guest("echo", "echo", "512MiB", "");
    let steps = vec![Step::Reported("memory")];
    let scenario = Scenario::new("refusal/too-little-memory", config, steps);
    scenario.ending(Ending::Done { crashed: 1 }).prepare(|boot, _| {
        boot.memory = 192 << 20;
        Ok(())
    })
}

impl Scenario {
    /// Boots another machine.
    pub fn with_config(mut self, config: String) -> Self {
        self.config = config;
        self
    }
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
pub fn flip_in_image(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
}

/// Makes another name of the VM's.
fn flip_in_name(bytes: &mut [u8]) {
    let name = b"echo\0";
    let place = bytes.windows(name.len()).rposition(|window| window == name);
    if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
        *byte ^= 1;
    }
}
