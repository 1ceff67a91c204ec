// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's serial line, shared by all VMs: frames of `turnstile_link` for the tool, or plain text for a
//! terminal.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use heapless::String;
use spin::{Mutex, Once};
use turnstile_devices::BACKLOG;
use turnstile_exitstat::{self as exitstat, Page, Reason};
use turnstile_link::{
    Command, Decoder, Down, DownLink, Event, Item, MAX_BUCKETS, MAX_TEXT, Memory, Outcome, Pool, StopReason,
    Up, VmState,
};
use turnstile_vm::lifecycle::Phase;

use crate::arch::boot::fault;
use crate::arch::service::Figures;
use crate::arch::vm::Vm;
use crate::arch::{console, println, time};

/// How the line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames.
    Framed,
    /// Text; each line is preceded by its VM's name if there are several.
    Plain,
}

static MODE: Once<Mode> = Once::new();
/// Whether there are several VMs, so that plain text says whose it is.
static SEVERAL: AtomicBool = AtomicBool::new(false);
static DECODER: Mutex<Option<Decoder<DownLink>>> = Mutex::new(None);
/// Which VM the last plain text was of, and whether its line was ended.
static PLAIN: Mutex<(u8, bool)> = Mutex::new((0, true));

/// What may be typed on a line of plain text.
static INTAKE: Mutex<Intake> = Mutex::new(Intake { closed: true, room: 0 });

/// Flow control of plain text, which has nobody on the other side to keep to it: what finds no room stays in the port, and at last
/// with its sender.
struct Intake {
    /// Whether the first VM, whose input it is, does not run.
    closed: bool,
    /// For how many bytes the VM has room.
    room: u16,
}

impl Intake {
    /// Takes a byte from the port if there is room for it; without room the port is silent until there is.
    fn take(&mut self) -> Option<u8> {
        if self.closed || self.room == 0 {
            console::mask_receive_interrupt(true);
            return None;
        }
        let byte = console::read()?;
        self.room -= 1;
        Some(byte)
    }
}

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

/// Passes on what a guest wrote to its console: up to [`MAX_BYTES`](turnstile_link::MAX_BYTES) bytes, in one frame.
#[inline(never)] // What it needs of the stack and the registers, other accesses to devices are not to pay for.
pub fn console(vm: &'static Vm, bytes: &[u8]) {
    if framed() {
        return send(&Up::Console { vm: vm.id, bytes });
    }
    let mut plain = PLAIN.lock();
    for &byte in bytes {
        let (last, ended) = *plain;
        // Relaxed: set before any VM runs.
        if SEVERAL.load(Ordering::Relaxed) {
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
        Event::Paused => println!("\nturnstile: {} is paused", vm.name),
        Event::Resumed { .. } => println!("\nturnstile: {} goes on", vm.name),
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

/// Writes text of the hypervisor's own, of one line or several.
pub fn report(text: core::fmt::Arguments<'_>) {
    if framed() {
        // The tool says whose it is.
        println!("{text}");
    } else {
        println!("turnstile: {text}");
    }
}

/// Tells that every VM has stopped.
pub fn done(crashed: u8) {
    if framed() {
        send(&Up::Done { crashed });
    } else {
        println!("turnstile: all VMs have stopped");
    }
}

/// Introduces the hypervisor, with so many CPUs, and its VMs: what each does, and the room for what is typed.
pub fn hello<'a>(cpus: usize, vms: impl ExactSizeIterator<Item = (&'a Vm, VmState, u16)>) {
    SEVERAL.store(vms.len() > 1, Ordering::Relaxed);
    if !framed() {
        return;
    }
    send(&Up::Hello {
        version: turnstile_link::marked_version(),
        hypervisor: env!("CARGO_PKG_VERSION"),
        cpus: cpus as u16,
        vms: vms.len() as u8,
    });
    for (vm, state, room) in vms {
        send(&Up::Vm { vm: vm.id, name: &vm.name, vcpus: vm.vcpus().len() as u16, state, room });
    }
}

/// Introduces a service, which serves a VM, with what is counted of it.
pub fn service(service: u8, vm: &Vm, name: &str, figures: &Figures) {
    if framed() {
        let Figures { crashes, exits, ticks } = *figures;
        send(&Up::Service { service, vm: vm.id, name, crashes, exits, ticks });
    }
}

/// A VM has started: what is typed on a line of plain text can go to the first.
pub fn open(vm: &Vm) {
    if !framed() && vm.id == 0 {
        *INTAKE.lock() = Intake { closed: false, room: BACKLOG as u16 };
        console::mask_receive_interrupt(false);
    }
}

/// A VM has stopped: what is typed on a line of plain text waits for its next life.
pub fn close(vm: &Vm) {
    if !framed() && vm.id == 0 {
        INTAKE.lock().closed = true;
    }
}

/// Tells that so many bytes more may be typed into a VM's console.
#[inline]
pub fn room(vm: &Vm, bytes: Option<u16>) {
    if let Some(bytes) = bytes {
        tell_room(vm, bytes);
    }
}

#[inline(never)] // As for `console`.
fn tell_room(vm: &Vm, bytes: u16) {
    if framed() {
        return send(&Up::Room { vm: vm.id, bytes });
    }
    // Input of plain text goes to the first VM alone.
    let mut intake = INTAKE.lock();
    if !intake.closed && intake.room == 0 {
        console::mask_receive_interrupt(false);
    }
    intake.room = intake.room.saturating_add(bytes).min(BACKLOG as u16);
}

/// Passes on what a guest wrote to a named port, to whom the tool has there.
#[inline(never)] // As for `console`.
pub fn port(vm: &Vm, port: u8, bytes: &[u8]) {
    send(&Up::Port { vm: vm.id, port, bytes });
}

/// Tells that so many bytes more may be sent to a named port.
#[inline]
pub fn port_room(vm: &Vm, port: u8, bytes: Option<u16>) {
    if let Some(bytes) = bytes {
        send(&Up::PortRoom { vm: vm.id, port, bytes });
    }
}

/// Tells that a named port is closed, and can be opened again.
pub fn port_closed(vm: &Vm, port: u8) {
    send(&Up::PortClosed { vm: vm.id, port });
}

/// Sends what the exits of a VM cost. Nobody is asked: the vCPUs go on counting while their pages are read. Only while
/// no life of the VM begins.
pub fn statistics(vm: &Vm) {
    for (vcpu, page) in vm.vcpus().iter().filter_map(|vcpu| Some((vcpu.index as u16, vcpu.statistics?))) {
        let (boots, ticks, frequency) = (vm.lifecycle.boots(), time::ticks(), page.frequency());
        send(&Up::Statistics(turnstile_link::Statistics { vm: vm.id, vcpu, boots, ticks, frequency }));
        for &reason in Reason::ALL {
            let exits = page.record(reason).read();
            for (part, counts) in exits.buckets.as_chunks::<MAX_BUCKETS>().0.iter().enumerate() {
                if counts.iter().any(|count| *count > 0) {
                    let (reason, first) = (reason.index() as u8, (part * MAX_BUCKETS) as u8);
                    send(&Up::Exits(turnstile_link::Exits {
                        vm: vm.id,
                        vcpu,
                        reason,
                        total: exits.total,
                        first,
                        counts: *counts,
                    }));
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
            send(&Up::Events(turnstile_link::Events {
                vm: vm.id,
                vcpu,
                first: (part * MAX_BUCKETS) as u8,
                counts,
            }));
        }
    }
}

/// Sends how many bytes of memory a VM has now, and how many it has at most, and whether it waits for more.
pub fn memory(vm: &Vm, (bytes, limit): (u64, u64)) {
    let waits = vm.taken.waits() && vm.lifecycle.phase() == Phase::Running;
    send(&Up::Memory { vm: vm.id, memory: Memory { bytes, limit, waits } });
}

/// Sends how many bytes the machine's pool has, and how many of them are free.
pub fn pool(bytes: u64, free: u64) {
    send(&Up::Pool(Pool { bytes, free }));
}

/// What the tool says of a named port.
#[derive(Clone, Copy, Debug)]
pub enum PortMessage<'a> {
    /// Somebody is there, for this life of the VM, who has so much room.
    Open { boots: u32, room: u16 },
    /// Nobody is there any more.
    Close,
    /// Bytes for the guest.
    Bytes(&'a [u8]),
    /// There is so much more room.
    Room(u16),
}

/// Who takes what arrives on the line.
pub trait Receiver {
    /// Takes what was typed for a VM.
    fn input(&self, vm: u8, bytes: &[u8]);
    /// The terminal of a VM's console has another size.
    fn resize(&self, vm: u8, columns: u16, rows: u16);
    /// Takes what the tool says of a named port of a VM.
    fn hear_of_port(&self, vm: u8, port: u8, message: PortMessage<'_>);
    /// Carries out a command of the tool.
    fn execute(&self, command: Command) -> Outcome;
}

/// Takes a typed byte. By a function of its own, so that the lock is not held while the byte is handed on.
fn take_plain() -> Option<u8> {
    INTAKE.lock().take()
}

/// Hands on what has arrived: typed text for the first VM, or frames.
#[inline(never)] // Long. The registers that it needs are not saved for other interrupts.
pub fn receive(receiver: &impl Receiver) {
    if !framed() {
        while let Some(byte) = take_plain() {
            receiver.input(0, &[byte]);
        }
        return;
    }
    while let Some(byte) = console::read() {
        let mut command = None;
        if let Some(decoder) = DECODER.lock().as_mut()
            && let Some(Item::Message(message)) = decoder.push(byte)
        {
            match message {
                Down::Input { vm, bytes } => receiver.input(vm, bytes),
                Down::Size { vm, columns, rows } => receiver.resize(vm, columns, rows),
                Down::PortOpen { vm, port, boots, room } => {
                    receiver.hear_of_port(vm, port, PortMessage::Open { boots, room });
                }
                Down::PortClose { vm, port } => receiver.hear_of_port(vm, port, PortMessage::Close),
                Down::Port { vm, port, bytes } => receiver.hear_of_port(vm, port, PortMessage::Bytes(bytes)),
                Down::PortRoom { vm, port, bytes } => {
                    receiver.hear_of_port(vm, port, PortMessage::Room(bytes));
                }
                Down::Command(received) => command = Some(received),
            }
        }
        // Without the decoder's lock: what a command does may take long.
        if let Some(command) = command {
            send(&Up::Reply { command, outcome: receiver.execute(command) });
        }
    }
}
