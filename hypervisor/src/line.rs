// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's serial line, shared by all VMs: frames of `turnstile_link` for the tool, or plain text for a
//! terminal.

use core::fmt::Write;

use heapless::String;
use spin::{Mutex, Once};
use turnstile_exitstat::{self as exitstat, Page, Reason};
use turnstile_link::{
    Decoder, DownLink, Event, Item, MAX_BUCKETS, MAX_TEXT, Outcome, StopReason, Up, VmState,
};

use crate::arch::vm::Vm;
use crate::arch::{console, fault, println, time};
use crate::system::{self, System};

/// How the line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames.
    Framed,
    /// Text; each line is preceded by its VM's name if there are several.
    Plain,
}

static MODE: Once<Mode> = Once::new();
static DECODER: Mutex<Option<Decoder<DownLink>>> = Mutex::new(None);
/// Which VM the last plain text was of, and whether its line was ended.
static PLAIN: Mutex<(u8, bool)> = Mutex::new((0, true));

/// Uses the line in `mode` from now on.
pub fn set_mode(mode: Mode) {
    MODE.call_once(|| mode);
    if mode == Mode::Framed {
        *DECODER.lock() = Some(Decoder::new());
        fault::set_announcement(announce_fault);
    }
}

/// Sends [`Up::Fault`] from a CPU that will not run on.
fn announce_fault(text: &str) {
    let _ = turnstile_link::send(&Up::Fault { text }, console::write_last);
}

fn framed() -> bool {
    MODE.get() == Some(&Mode::Framed)
}

fn send(message: &Up<'_>) {
    // Cannot fail: texts and bytes are clipped before they get here.
    let _ = turnstile_link::send(message, console::write);
}

/// Passes on a byte that a guest wrote to its console.
pub fn console(vm: &'static Vm, byte: u8) {
    if framed() {
        return send(&Up::Console { vm: vm.id, bytes: &[byte] });
    }
    let mut plain = PLAIN.lock();
    let (last, ended) = *plain;
    if system::get().is_some_and(|system| system.guests.len() > 1) {
        if !ended && last != vm.id {
            console::write(b"\r\n");
        }
        if ended || last != vm.id {
            console::write(vm.name.as_bytes());
            console::write(b": ");
        }
    }
    console::write(&[byte]);
    *plain = (vm.id, byte == b'\n');
}

fn reason_text(reason: StopReason) -> &'static str {
    match reason {
        StopReason::PowerOff => "powered off",
        StopReason::Reset => "asked for a reset",
        StopReason::Crash => "crashed",
        StopReason::Killed => "was stopped",
    }
}

/// Tells what happened to a VM.
pub fn event(vm: &Vm, event: Event<'_>) {
    if framed() {
        return send(&Up::Event { vm: vm.id, event });
    }
    *PLAIN.lock() = (vm.id, true);
    match event {
        Event::Started { boots: 1, .. } => println!("turnstile: {} starts", vm.name),
        Event::Started { boots, .. } => println!("turnstile: {} starts again (boot {boots})", vm.name),
        Event::Stopped { reason, .. } => println!("\nturnstile: {} {}", vm.name, reason_text(reason)),
        Event::Crashed { text } => println!("\nturnstile: {}: {text}", vm.name),
    }
}

/// Reports something about a VM in a line of text: a crash, or why it cannot start.
pub fn crash(vm: &Vm, text: core::fmt::Arguments<'_>) {
    let mut line = String::<MAX_TEXT>::new();
    // A longer text is cut at the end of the buffer.
    let _ = line.write_fmt(text);
    event(vm, Event::Crashed { text: turnstile_link::clip(&line) });
}

/// Tells that every VM has stopped.
pub fn done(crashed: u8) {
    if framed() {
        send(&Up::Done { crashed });
    } else {
        println!("turnstile: all VMs have stopped");
    }
}

/// Introduces the hypervisor and its VMs.
pub fn hello(system: &System) {
    if !framed() {
        return;
    }
    send(&Up::Hello {
        version: turnstile_link::VERSION,
        hypervisor: env!("CARGO_PKG_VERSION"),
        cpus: system.host.cpus.len() as u16,
        vms: system.guests.len() as u8,
    });
    for guest in &system.guests {
        let state = if guest.is_running() { VmState::Running } else { VmState::Stopped };
        let vcpus = guest.vm.vcpus().len() as u16;
        send(&Up::Vm { vm: guest.vm.id, name: &guest.vm.name, vcpus, state });
    }
}

/// Sends what the exits of a VM cost. Nobody is asked: the vCPUs go on counting while their pages are read. Only while
/// no life of the VM begins.
pub fn statistics(vm: &Vm) {
    for (vcpu, page) in vm.vcpus().iter().filter_map(|vcpu| Some((vcpu.index as u16, vcpu.statistics?))) {
        let (boots, ticks, frequency) = (vm.lifecycle.boots(), time::ticks(), page.frequency());
        send(&Up::Statistics { vm: vm.id, vcpu, boots, ticks, frequency });
        for &reason in Reason::ALL {
            let exits = page.record(reason).read();
            for (part, counts) in exits.buckets.as_chunks::<MAX_BUCKETS>().0.iter().enumerate() {
                if counts.iter().any(|count| *count > 0) {
                    let (reason, first) = (reason.index() as u8, (part * MAX_BUCKETS) as u8);
                    send(&Up::Exits { vm: vm.id, vcpu, reason, total: exits.total, first, counts: *counts });
                }
            }
        }
        events(vm, vcpu, page);
    }
}

/// Sends how often events happened to a vCPU.
fn events(vm: &Vm, vcpu: u16, page: &Page) {
    for (part, events) in exitstat::Event::ALL.chunks(MAX_BUCKETS).enumerate() {
        let mut counts = [0; MAX_BUCKETS];
        counts.iter_mut().zip(events).for_each(|(count, &event)| *count = page.events(event));
        if counts.iter().any(|count| *count > 0) {
            send(&Up::Events { vm: vm.id, vcpu, first: (part * MAX_BUCKETS) as u8, counts });
        }
    }
}

/// Answers a command.
fn reply(command: turnstile_link::Command, outcome: Outcome) {
    send(&Up::Reply { command, outcome });
}

/// Takes what arrived on the line: typed text for the first VM, or frames.
pub fn receive(system: &'static System) {
    while let Some(byte) = console::read() {
        if !framed() {
            system.input(0, &[byte]);
            continue;
        }
        let mut command = None;
        if let Some(decoder) = DECODER.lock().as_mut()
            && let Some(Item::Message(message)) = decoder.push(byte)
        {
            match message {
                turnstile_link::Down::Input { vm, bytes } => system.input(vm, bytes),
                turnstile_link::Down::Command(received) => command = Some(received),
            }
        }
        if let Some(command) = command {
            reply(command, system.execute(command));
        }
    }
}
