// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the vCPUs, each in a thread on a CPU of its own as far as there are so many.

use std::io::Stdout;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use kvm_bindings::{KVM_SYSTEM_EVENT_RESET, KVM_SYSTEM_EVENT_SHUTDOWN};
use kvm_ioctls::{VcpuExit, VcpuFd};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bus::{Bus, NoDevice};
use crate::console::{Console, Heard};
use crate::cycles::Cycles;
use crate::machine::Machine;
use crate::options::Options;

/// What all vCPUs share.
struct Shared {
    bus: Bus,
    console: Console<Stdout>,
}

/// Runs a machine until its guest switches it off, and hands the outcome to `finish`, which ends the process: the
/// vCPUs that are left never return from KVM.
///
/// The first vCPU runs on the calling thread. A process with one thread is what KVM serves fastest: the kernel need
/// not count who uses a file at each system call.
pub fn run(machine: &mut Machine, bus: Bus, options: &Options, finish: fn(Result<()>) -> !) -> ! {
    let shared = Arc::new(Mutex::new(Shared { bus, console: Console::new(std::io::stdout()) }));
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

fn to_its_end(index: usize, cpu: usize, mut vcpu: VcpuFd, shared: &Mutex<Shared>, count: bool) -> Result<()> {
    let result = pin(cpu).and_then(|()| enter(&mut vcpu, shared, count));
    lock(shared).console.flush()?;
    result.with_context(|| format!("vCPU {index}"))
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("the host has no CPU {cpu} for it"))
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a vCPU until the machine is switched off.
fn enter(vcpu: &mut VcpuFd, shared: &Mutex<Shared>, count: bool) -> Result<()> {
    let mut cycles = if count { cycles_or_note() } else { None };
    loop {
        match vcpu.run() {
            Ok(VcpuExit::MmioRead(address, data)) => {
                if !lock(shared).bus.read(address, data) {
                    bail!("the guest reads {address:#x}, where there is no device");
                }
            }
            Ok(VcpuExit::MmioWrite(address, data)) => {
                let sent = lock(shared).bus.write(address, data);
                match sent {
                    Ok(None) => {}
                    Ok(Some(byte)) => hear(byte, shared, cycles.as_mut())?,
                    Err(NoDevice) => bail!("the guest writes to {address:#x}, where there is no device"),
                }
            }
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN, _)) => return Ok(()),
            Ok(VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_RESET, _)) => bail!("the guest restarts its machine"),
            Ok(exit) => bail!("KVM cannot go on: {exit:?}"),
            Err(error) if error.errno() == rustix::io::Errno::INTR.raw_os_error() => {}
            Err(error) => bail!("KVM cannot run it: {error}"),
        }
    }
}

fn cycles_or_note() -> Option<Cycles> {
    Cycles::new().map_err(|error| println!("@note {error:#}")).ok()
}

/// Hands a byte to the console, and counts cycles from the guest's mark to its next byte.
fn hear(byte: u8, shared: &Mutex<Shared>, cycles: Option<&mut Cycles>) -> Result<()> {
    let heard = lock(shared).console.put(byte)?;
    let Some(cycles) = cycles else { return Ok(()) };
    match heard {
        Heard::MeasuringBegins => cycles.start(),
        Heard::Begun => {
            if let Some(counted) = cycles.stop()? {
                println!("@cycles {counted}");
            }
            Ok(())
        }
        Heard::Other => Ok(()),
    }
}
