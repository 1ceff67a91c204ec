// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stands in for QEMU in the end-to-end tests: it reads the bundle, speaks the link on its standard input and
//! output, and ends in the way that `FAKE_QEMU` says: `poweroff`, `crash`, `refuse`, `die`, `fault`, `echo`, `stuck`
//! (as `echo`, but no VM starts a second time), `deaf`, `spin` or `hang`.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use turnstile_bundle::Bundle;
use turnstile_link::{
    Command, Decoder, Down, DownLink, Event, Exits, Item, MAX_BUCKETS, MAX_BYTES, Memory, Message, Outcome,
    Pool, Statistics, StopReason, Up, VmState,
};

/// More than a client's outbox and its socket hold.
const FLOOD: usize = 4 << 20;
/// How many bytes may be typed into a VM's console.
const ROOM: u16 = 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--version") {
        let version = std::env::var("FAKE_QEMU_VERSION").unwrap_or_else(|_| "10.0.2".to_owned());
        println!("QEMU emulator version {version} (a stand-in)");
        return;
    }
    if arguments.iter().any(|argument| argument == "help") {
        println!("virt   a stand-in of it\nq35    a stand-in of it");
        return;
    }
    let after = |name: &str| {
        let position = arguments.iter().position(|argument| argument == name)?;
        arguments.get(position + 1)
    };
    let bytes = std::fs::read(after("-initrd").expect("a bundle is passed")).expect("the bundle can be read");
    let bundle = Bundle::parse(&bytes).expect("the bundle is good");
    if let Ok(file) = std::env::var("FAKE_QEMU_ARGUMENTS") {
        std::fs::write(file, arguments.join("\n")).expect("the arguments can be recorded");
    }
    let play = std::env::var("FAKE_QEMU");
    if play.as_deref() == Ok("refuse") {
        eprintln!("qemu: it is broken");
        std::process::exit(3);
    }
    say(b"Turnstile, a stand-in\r\n");
    greet(&bundle);
    match play.as_deref() {
        Ok("poweroff") => stop_all(&bundle, StopReason::PowerOff, 0),
        Ok("crash") => {
            send(&Up::Event { vm: 0, event: Event::Crashed { text: "the guest jumped to nowhere" } });
            stop_all(&bundle, StopReason::Crash, 1);
        }
        Ok("die") => {
            eprintln!("qemu: it is broken");
            std::process::exit(3);
        }
        Ok("fault") => send(&Up::Fault { text: "page fault at 0x10" }),
        Ok("echo" | "stuck" | "busy") => echo(&bundle, true),
        Ok("deaf") => echo(&bundle, false),
        Ok("spin") => loop {
            std::hint::spin_loop();
        },
        _ => loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
    }
}

fn greet(bundle: &Bundle<'_>) {
    let vms = bundle.vms();
    let cpus = vms.iter().map(|vm| vm.vcpus as u16).sum();
    let version = std::env::var("FAKE_LINK").ok().and_then(|version| version.parse().ok());
    let version = version.unwrap_or(turnstile_link::VERSION);
    send(&Up::Hello { version, hypervisor: "0.0.0", cpus, vms: vms.len() as u8 });
    for (index, vm) in vms.iter().enumerate() {
        let index = index as u8;
        send(&Up::Vm {
            vm: index,
            name: vm.name,
            vcpus: vm.vcpus as u16,
            state: VmState::Running,
            room: ROOM,
        });
        send(&Up::Event { vm: index, event: Event::Started { boots: 1, free_memory: 1, free_tables: 1 } });
        let line = format!("hello from {}\r\n", vm.name);
        send(&Up::Console { vm: index, bytes: line.as_bytes() });
    }
}

fn stop_all(bundle: &Bundle<'_>, reason: StopReason, crashed: u8) {
    for vm in 0..bundle.vms().len() {
        send(&Up::Event { vm: vm as u8, event: Event::Stopped { reason, restarts: false } });
    }
    send(&Up::Done { crashed });
}

/// Writes back what is typed, keeps statistics, and does what is commanded. A `q` powers off, and a `!` writes more than anybody keeps.
/// A guest that does not read has no more than room for what is typed. Who comes to a port is welcomed, and who is there when the machine is powered off is told.
fn echo(bundle: &Bundle<'_>, reads: bool) {
    let mut room = usize::from(ROOM);
    let mut decoder = Decoder::<DownLink>::new();
    let mut vms = vec![Vm { running: true, paused: false, boots: 1 }; bundle.vms().len()];
    let mut open = vec![];
    for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
        match decoder.push(byte) {
            Some(Item::Message(Down::Input { vm, bytes })) => {
                room = room.checked_sub(bytes.len()).expect("no more comes than there is room for");
                if !reads {
                    continue;
                }
                send(&Up::Console { vm, bytes });
                if bytes.contains(&b'!') {
                    (0..FLOOD / MAX_BYTES).for_each(|_| send(&Up::Console { vm, bytes: &[b'.'; MAX_BYTES] }));
                    send(&Up::Console { vm, bytes: b"\r\nthat was all\r\n" });
                }
                room += bytes.len();
                send(&Up::Room { vm, bytes: bytes.len() as u16 });
                if bytes.contains(&b'q') {
                    return stop_all(bundle, StopReason::PowerOff, 0);
                }
            }
            Some(Item::Message(Down::Size { .. })) => {}
            Some(Item::Message(Down::PortOpen { vm, port, .. })) => {
                send(&Up::Port { vm, port, bytes: b"welcome\n" });
                open.push((vm, port));
            }
            Some(Item::Message(Down::Command(Command::Poweroff))) => {
                open.iter().for_each(|&(vm, port)| send(&Up::Port { vm, port, bytes: b"goodbye\n" }));
                return stop_all(bundle, StopReason::Killed, 0);
            }
            Some(Item::Message(Down::Command(Command::Statistics { vm }))) => statistics(bundle, vm),
            Some(Item::Message(Down::Command(Command::Memory))) => memory(bundle),
            Some(Item::Message(Down::Command(command))) => {
                obey(command, bundle, &mut vms);
                if vms.iter().all(|vm| !vm.running) {
                    return send(&Up::Done { crashed: 0 });
                }
            }
            _ => {}
        }
    }
}

/// What a VM does.
#[derive(Clone)]
struct Vm {
    running: bool,
    paused: bool,
    boots: u32,
}

/// Starts and stops VMs as the hypervisor does.
fn obey(command: Command, bundle: &Bundle<'_>, vms: &mut [Vm]) {
    let (index, pauses) = match command {
        Command::Restart { vm } | Command::Stop { vm } => (vm, None),
        Command::Pause { vm } => (vm, Some(true)),
        Command::Resume { vm } => (vm, Some(false)),
        _ => return,
    };
    let vm = &mut vms[usize::from(index)];
    if let Some(pauses) = pauses {
        let outcome = if vm.running && vm.paused != pauses { Outcome::Accepted } else { Outcome::NotNow };
        send(&Up::Reply { command, outcome });
        if outcome == Outcome::Accepted {
            vm.paused = pauses;
            // One that never leaves its guest.
            if pauses && std::env::var("FAKE_QEMU").as_deref() == Ok("busy") {
                return;
            }
            let event = if pauses { Event::Paused } else { Event::Resumed { microseconds: 250_000 } };
            send(&Up::Event { vm: index, event });
        }
        return;
    }
    vm.paused = false;
    let (was_running, restarts) = (vm.running, matches!(command, Command::Restart { .. }));
    vm.running = restarts;
    let outcome = if was_running || restarts { Outcome::Accepted } else { Outcome::NotNow };
    send(&Up::Reply { command, outcome });
    if was_running {
        let reason = if restarts { StopReason::Reset } else { StopReason::Killed };
        send(&Up::Event { vm: index, event: Event::Stopped { reason, restarts } });
    }
    if restarts && std::env::var("FAKE_QEMU").as_deref() == Ok("stuck") {
        vm.running = false;
        let name = bundle.vms().get(usize::from(index)).expect("a VM of the bundle").name;
        let text = format!("{name} does not start: there is no memory for it");
        send(&Up::Event { vm: index, event: Event::Crashed { text: &text } });
    } else if restarts {
        vm.boots += 1;
        let event = Event::Started { boots: vm.boots, free_memory: 1, free_tables: 1 };
        send(&Up::Event { vm: index, event });
    }
}

/// Answers as a VM whose vCPUs have made a thousand hypercalls of 50 ticks each time they were asked.
fn statistics(bundle: &Bundle<'_>, vm: u8) {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let spec = bundle.vms().get(usize::from(vm)).expect("a VM of the bundle");
    let outcome = if spec.statistics { Outcome::Accepted } else { Outcome::NotKept };
    for vcpu in (0..spec.vcpus as u16).filter(|_| spec.statistics) {
        send(&Up::Statistics(Statistics {
            vm,
            vcpu,
            boots: 1,
            ticks: asked * 1_000_000_000,
            frequency: 1_000_000_000,
        }));
        let mut counts = [0; MAX_BUCKETS];
        counts[6] = 1000 * asked;
        send(&Up::Exits(Exits { vm, vcpu, reason: 0, total: 50_000 * asked, first: 0, counts }));
    }
    send(&Up::Reply { command: Command::Statistics { vm }, outcome });
}

/// Answers as VMs that have 6 MiB each of a pool of 1 GiB.
fn memory(bundle: &Bundle<'_>) {
    for (vm, spec) in bundle.vms().iter().enumerate() {
        let memory = Memory { bytes: 6 << 20, limit: spec.memory, waits: false };
        send(&Up::Memory { vm: vm as u8, memory });
    }
    let taken = (bundle.vms().len() as u64 * 6) << 20;
    send(&Up::Pool(Pool { bytes: 1 << 30, free: (1 << 30) - taken }));
    send(&Up::Reply { command: Command::Memory, outcome: Outcome::Accepted });
}

fn send(message: &impl Message) {
    turnstile_link::send(message, say).expect("the message fits a frame");
}

fn say(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // Nobody listens any more.
        std::process::exit(0);
    }
}
