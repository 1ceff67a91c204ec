// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that are scripts.

use core::sync::atomic::{AtomicBool, AtomicU64};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::format;
use std::string::{String, ToString};
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use turnstile_service::abi::{self, Call};
use turnstile_service::image::Doorbells;

use super::*;
use crate::served::{Bar, Served, Services};

mod beginning;
mod demand;
mod driven;
mod functions;
mod life;
mod members;
mod own;

/// What the service does next, when it is entered or resumed.
#[derive(Clone, Copy, Debug)]
enum Step {
    Done(u64, u64),
    Answer(abi::Answer),
    Call(Call, [u64; 3]),
    Interrupt,
    Fault,
    /// It touches an address where nothing is mapped.
    Miss(u64),
}

std::thread_local! {
    /// The time.
    static NOW: Cell<u64> = const { Cell::new(9) };
}

#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    registers: Mutex<[u64; 6]>,
    late: AtomicBool,
    missed: Mutex<Option<u64>>,
    /// The first events of each beginning.
    events: Mutex<Vec<Event>>,
    /// What happened: entries by their kind, results, begins.
    heard: Mutex<Vec<String>>,
}

impl Script {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }

    fn next(&self) -> Left {
        let step = self.steps.lock().unwrap().pop_front().unwrap_or(Step::Done(0, 0));
        *self.missed.lock().unwrap() = if let Step::Miss(address) = step { Some(address) } else { None };
        match step {
            Step::Done(value, lines) => {
                *self.registers.lock().unwrap() = [Call::Done as u64, value, lines, 0, 0, 0];
                Left::Call
            }
            Step::Answer(abi::Answer { value, lines, count, words: [first, second] }) => {
                *self.registers.lock().unwrap() = [Call::Done as u64, value, lines, count, first, second];
                Left::Call
            }
            Step::Call(call, [a, b, c]) => {
                *self.registers.lock().unwrap() = [call as u64, a, b, c, 0, 0];
                Left::Call
            }
            Step::Interrupt => Left::Interrupt,
            Step::Fault | Step::Miss(_) => Left::Fault,
        }
    }
}

impl Space for Script {
    unsafe fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        self.hear(format!("attach {member}: {}", windows.len()));
        windows.iter_mut().for_each(|window| window.address = window.guest + 0x1000);
        Ok(())
    }

    unsafe fn detach(&self, member: usize) {
        self.hear(format!("detach {member}"));
    }

    unsafe fn enter(&self, event: &Event) -> Left {
        self.hear(format!("{:?} {}", event.kind().unwrap(), event.0[1]));
        if event.kind() == Some(Kind::Doorbell) {
            assert_eq!(event.0[2], NOW.get(), "the time");
        }
        if matches!(event.kind(), Some(Kind::Memory | Kind::Attach | Kind::Device)) {
            self.events.lock().unwrap().push(*event);
        }
        self.next()
    }

    unsafe fn resume(&self, result: Option<u64>) -> Left {
        self.hear(format!("resume {result:?}"));
        self.next()
    }

    unsafe fn call(&self) -> [u64; 6] {
        *self.registers.lock().unwrap()
    }

    unsafe fn missed(&self) -> Option<u64> {
        *self.missed.lock().unwrap()
    }

    unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        self.hear(format!("supply {:x}: {offset:x} at {host:x}", window.guest));
        true
    }

    unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        self.hear(format!("withdraw {:x}: {offsets:x?}", window.guest));
    }

    unsafe fn excuse<R>(&self, act: impl FnOnce() -> R) -> R {
        self.hear("excuse".to_string());
        act()
    }

    fn now() -> u64 {
        NOW.get()
    }

    fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    unsafe fn begin(&self, keep: bool) {
        self.hear(format!("begin {keep}"));
    }

    fn explain(&self, _: Left, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("here")
    }
}

#[derive(Default)]
struct World {
    said: Mutex<Vec<String>>,
    typed: Mutex<Vec<u8>>,
    /// What others do while it is said how much of that was taken.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What is left of the generator.
    random: Mutex<Vec<u64>>,
    /// How many characters were printed, and how many of those typed were taken.
    printed: AtomicU64,
    taken: AtomicU64,
    /// The terminal's size, and whether it is news.
    size: AtomicU64,
    is_resized: AtomicBool,
    /// Whether the pool has a block.
    has_memory: AtomicBool,
    /// What becomes of touches.
    touched: Mutex<VecDeque<Touch>>,
}

impl World {
    fn say(&self, what: String) {
        self.said.lock().unwrap().push(what);
    }
}

impl Outside for World {
    fn print(&self, count: u64, words: [u64; 2]) -> u64 {
        let bytes: Vec<u8> = abi::characters(count, words).collect();
        self.say(format!("print {}", String::from_utf8_lossy(&bytes)));
        self.printed.fetch_add(count, Ordering::Relaxed) + count
    }

    fn log(&self, count: u64, _: [u64; 2]) {
        self.say(format!("log {count}"));
    }

    fn random(&self) -> Option<u64> {
        self.random.lock().unwrap().pop()
    }

    fn lines(&self, changed: u64, levels: u64) {
        self.say(format!("lines {changed:x} {levels:x}"));
    }

    fn message(&self, member: usize, address: u64, data: u64) -> bool {
        self.say(format!("message {member}: {address:x} {data:x}"));
        address != 0
    }

    fn decode(&self, member: usize, bar: u64, address: u64, size: u64) -> bool {
        self.say(format!("decode {member}: {bar} {address:x} {size:x}"));
        address != 0
    }

    fn call(&self, members: u64) {
        self.say(format!("call {members:x}"));
    }

    fn wake(&self) {
        self.say("wake".to_string());
    }

    fn alarm(&self, at: u64) -> u64 {
        self.say(format!("alarm {at}"));
        7
    }

    fn typed(&self) -> Typed {
        let typed = self.typed.lock().unwrap();
        let mut word = [0; 8];
        let count = typed.len().min(8);
        word[..count].copy_from_slice(&typed[..count]);
        Typed {
            count: count as u64,
            characters: u64::from_le_bytes(word),
            position: self.taken.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            is_news: self.is_resized.swap(false, Ordering::Relaxed),
            ..Typed::default()
        }
    }

    fn took(&self, typed: &Typed, count: u64) -> bool {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|act| act());
        if typed.port != 0 {
            self.say(format!("took {count} of {}", typed.port));
            return false;
        }
        self.taken.fetch_add(count, Ordering::Relaxed);
        self.typed.lock().unwrap().drain(..count as usize);
        count != 0
    }

    fn send(&self, port: u64, count: u64, words: [u64; 2]) -> Option<u64> {
        let bytes: Vec<u8> = abi::characters(count, words).collect();
        self.say(format!("send {port}: {}", String::from_utf8_lossy(&bytes)));
        (port == 1).then_some(count)
    }

    fn port_name(&self, port: u64, word: u64) -> Option<u64> {
        (port == 1).then_some(word)
    }

    fn allow(&self, allowed: bool) {
        self.say(format!("allow {allowed}"));
    }

    fn unmask(&self) {
        self.say("unmask".to_string());
    }

    fn touch(&self, member: usize, address: u64) -> Result<u64, Touch> {
        self.say(format!("touch {member}: {address:x}"));
        self.touched.lock().unwrap().pop_front().map_or(Ok(BLOCK_HOST), Err)
    }

    fn has_memory(&self, _: usize) -> bool {
        self.has_memory.load(Ordering::Relaxed)
    }

    fn give_up(&self, guest: Range<u64>) -> Option<u64> {
        self.say(format!("give up {guest:x?}"));
        Some(3)
    }

    fn keep(&self) {
        self.say("keep".to_string());
    }

    fn shut_out(&self, members: u64) {
        self.say(format!("shut out {members:x}"));
    }

    fn crashed(&self, number: u32, report: fmt::Arguments<'_>) {
        self.say(format!("{number}: {}", report.to_string().replace('\n', ", ")));
    }
}

/// Where each block is that is touched.
const BLOCK_HOST: u64 = 0x7e0_0000;

/// A CPU: how often it was interrupted, and what happens then.
struct Kept<'a>(&'a RefCell<u32>, &'a dyn Fn());

impl Meanwhile for Kept<'_> {
    fn interrupt(&mut self) {
        *self.0.borrow_mut() += 1;
        self.1();
    }

    fn wait(&mut self) {
        panic!("nobody else is there");
    }

    fn again(&mut self) {}
}

/// A CPU: how often it was asked to look again.
struct Wanted(u32);

impl Meanwhile for Wanted {
    fn interrupt(&mut self) {}

    fn wait(&mut self) {}

    fn again(&mut self) {
        self.0 += 1;
    }
}

fn service(steps: &[Step]) -> (Service<Script>, &'static World) {
    let world: &'static World = Box::leak(Box::default());
    let script = Script::default();
    script.steps.lock().unwrap().extend(steps);
    (
        Service::new("test".to_string(), script, world, Port { bars: 0x5000, settings: [0; 2], vm: None }),
        world,
    )
}

/// A service that three VMs share.
fn shared(steps: &[Step]) -> (Service<Script>, &'static World) {
    let world: &'static World = Box::leak(Box::default());
    let script = Script::default();
    script.steps.lock().unwrap().extend(steps);
    let ports = [1, 2, 3].map(|number| Port {
        bars: number << 12,
        settings: [number, 10 * number],
        vm: Some(number as u8),
    });
    (Service::shared("test".to_string(), script, world, &ports), world)
}

const READ: Event = Event::new(Kind::Read, [0, 8, 1, 0, 0]);

fn access_and(service: &Service<Script>, interrupted: &dyn Fn()) -> (u64, u32) {
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    let answer = unsafe { service.access(&READ, &mut Kept(&interrupts, interrupted)) };
    assert!(!service.gate.is_inside(), "whoever was inside has left");
    (answer.value, interrupts.into_inner())
}

fn access(service: &Service<Script>) -> u64 {
    access_and(service, &|| {}).0
}

/// Looks until nothing is wanted.
fn look(service: &Service<Script>) {
    let interrupts = RefCell::new(0);
    for _ in 0..8 {
        // SAFETY: the script needs no CPU.
        unsafe { service.look(&mut Kept(&interrupts, &|| {})) };
    }
}

fn heard(service: &Service<Script>) -> Vec<String> {
    core::mem::take(&mut service.space.heard.lock().unwrap())
}

fn said(world: &World) -> Vec<String> {
    core::mem::take(&mut world.said.lock().unwrap())
}

/// Hands the service an event of a member.
fn access_of(service: &Service<Script>, member: u64) -> u64 {
    let event = Event::new(Kind::Read, [abi::member_device(member, 1), 0, 1, 0, 0]);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.access(&event, &mut Kept(&interrupts, &|| {})) }.value
}

fn window(guest: u64) -> Window {
    Window { guest, size: 0x1000, ..Window::default() }
}

/// What the first events were: kind and arguments.
fn events(service: &Service<Script>) -> Vec<(Kind, [u64; 5])> {
    let events = core::mem::take(&mut *service.space.events.lock().unwrap());
    let apart = |event: Event| {
        let [_, a, b, c, d, e] = event.0;
        (event.kind().unwrap(), [a, b, c, d, e])
    };
    events.into_iter().map(apart).collect()
}

/// A shared service that drives a device.
fn driver(steps: &[Step]) -> (Service<Script>, &'static World) {
    let (mut service, world) = shared(steps);
    let registers = Window { host: 0xfe00_0000, registers: true, ..window(0) };
    service.drive(Device::new(&[(4, registers)], window(0x2000), window(0x3000), [7, 8])).unwrap();
    service.attach(0, vec![], None).unwrap();
    heard(&service);
    (service, world)
}

/// So many events that go well, then this.
fn after(events: usize, step: Step) -> Vec<Step> {
    let mut steps = vec![Step::Done(0, 0); events];
    steps.push(step);
    steps
}
