// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with POWER of all kinds, and what the hypervisor refuses there, in a sentence.

use std::path::Path;

use super::guests;
use super::refusals::{change, flip_in_image, provoke};
use super::scenario::{Ending, Scenario, Step, guest};
use crate::failure::Result;
use crate::qemu::Boot;

const RESET: &str = "resetting the machine";

/// A guest of its own on the CPU of this number, on a machine with these lines.
fn on(name: &str, machine: &str, cpu: u16) -> Scenario {
    let echo = guests::echo("pseries");
    let config = format!("[machine]\n{machine}\n{}cpus = [{cpu}]\n", echo.config.replace("8MiB", "16MiB"));
    Scenario::power(format!("boards/{name}"), config, echo.steps)
}

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for board in ["powernv9", "powernv10"] {
        scenarios.push(on(&format!("{board}-one-cpu"), &format!("board = \"{board}\"\ncpus = 1"), 0));
        scenarios.push(on(&format!("{board}-four-cpus"), &format!("board = \"{board}\"\ncpus = 4"), 3));
        // Threads of a core are CPUs, too.
        scenarios.push(
            on(&format!("{board}-threads"), &format!("board = \"{board}\"\ncpus = 8"), 7).prepare(
                |boot, _| {
                    boot.extra.extend(["-smp".into(), "8,cores=2,threads=4".into()]);
                    Ok(())
                },
            ),
        );
    }
    scenarios.extend(refusals());
    scenarios
}

fn refusals() -> Vec<Scenario> {
    vec![
        refuse("flipped-byte-in-an-image", "damaged: image 0", |boot, folder| {
            change(boot, folder, |bytes| flip_in_image(bytes))
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
        refuse("no-radix-trees", "do not translate by radix trees", |boot, _| {
            boot.extra.extend(["-machine".into(), "powernv8".into()]);
            Ok(())
        }),
        refuse("too-few-cpus", "CPU", |boot, folder| {
            // The bundle of a machine with more CPUs than this one has.
            boot.cpus = 1;
            change(boot, folder, |_| {})
        })
        .with_config(format!(
            "[machine]\nisa = \"power64\"\n{}",
            guest("echo", "echo", "16MiB", "cpus = [3]")
        )),
        fault("run-data", vec!["hypervisor emulation assistance", "in the hypervisor", "backtrace", RESET])
            .prepare(|boot, _| provoke(boot, "run-data")),
        fault("panic", vec!["panicked at", "provoked", "backtrace", RESET])
            .prepare(|boot, _| provoke(boot, "panic")),
    ]
}

/// A fault that the hypervisor's command line provokes: reported with registers and backtrace, then a reset.
fn fault(kind: &str, texts: Vec<&'static str>) -> Scenario {
    let steps = texts.into_iter().map(Step::Text).collect();
    Scenario::power(format!("fault/{kind}"), echo(), steps).ending(Ending::Refused).limit(60)
}

fn echo() -> String {
    guest("echo", "echo", "16MiB", "")
}

fn refuse(name: &str, text: &'static str, prepare: fn(&mut Boot, &Path) -> Result<()>) -> Scenario {
    let scenario = Scenario::power(format!("refusal/{name}"), echo(), vec![Step::Text(text)]);
    scenario.ending(Ending::Refused).prepare(prepare).limit(60)
}
