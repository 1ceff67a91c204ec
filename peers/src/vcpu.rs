// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the vCPUs, each in a thread on a CPU of its own as far as there are so many.

use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};

use crate::arch::{self, Devices, Machine, Vcpu};
use crate::console::Console;
use crate::cycles::Cycles;
use crate::events::Events;
use crate::host::pin;
use crate::options::Options;
use crate::shared::{Shared, lock};

/// Runs a machine until its guest switches it off, and hands the outcome to `finish`, which ends the process: the
/// vCPUs that are left never return from KVM.
///
/// The first vCPU runs on the calling thread. A process with one thread is what KVM serves fastest: the kernel need
/// not count who uses a file at each system call.
pub fn run(machine: &mut Machine, devices: Devices, options: &Options, finish: fn(Result<()>) -> !) -> ! {
    let events = match options.events.then(|| Events::new(options.host_cpus())).transpose() {
        Ok(events) => events,
        Err(error) => finish(Err(error)),
    };
    let console = Console::new(std::io::stdout(), options.marks());
    let shared = Arc::new(Mutex::new(Shared { devices, console, events }));
    let mut vcpus = machine.vcpus.drain(..).enumerate();
    let first = vcpus.next();
    for (index, vcpu) in vcpus {
        let shared = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("vcpu{index}"));
        let cpu = options.cpu(index);
        if let Err(error) = thread.spawn(move || finish(to_its_end(index, cpu, vcpu, &shared, false))) {
            finish(Err(error).context("cannot start a vCPU's thread"));
        }
    }
    match first {
        Some((index, vcpu)) => finish(to_its_end(index, options.cpu(index), vcpu, &shared, options.cycles)),
        None => finish(Err(anyhow::anyhow!("a machine needs a vCPU"))),
    }
}

fn to_its_end(index: usize, cpu: usize, mut vcpu: Vcpu, shared: &Mutex<Shared>, count: bool) -> Result<()> {
    let result =
        pin(cpu).and_then(|()| arch::enter(&mut vcpu, shared, if count { cycles_or_note() } else { None }));
    lock(shared).console.flush()?;
    result.with_context(|| format!("vCPU {index}"))
}

fn cycles_or_note() -> Option<Cycles> {
    Cycles::new().map_err(|error| println!("@note {error:#}")).ok()
}
