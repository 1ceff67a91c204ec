// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that are scripts.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::string::{String, ToString};
use std::sync::Mutex;
use std::vec;
use std::vec::Vec;

use turnstile_service::abi::{self, Call};
use turnstile_service::image::Doorbells;

use super::*;
use crate::served::{Bar, Served, Services};

mod own;

/// What the service does next, when it is entered or resumed.
#[derive(Clone, Copy, Debug)]
enum Step {
    Done(u64, u64),
    Answer(abi::Answer),
    Call(Call, [u64; 3]),
    Interrupt,
    Fault,
}

#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    registers: Mutex<[u64; 6]>,
    late: AtomicBool,
    /// The first events of each beginning.
    events: Mutex<Vec<Event>>,
    /// What happened: entries by their kind, results, begins.
    heard: Mutex<Vec<String>>,
}

use core::sync::atomic::AtomicBool;

impl Script {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }

    fn next(&self) -> Left {
        match self.steps.lock().unwrap().pop_front().unwrap_or(Step::Done(0, 0)) {
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
            Step::Fault => Left::Fault,
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
            assert_eq!(event.0[2], 9, "the time");
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

    fn now() -> u64 {
        9
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
    /// What is left of the generator.
    random: Mutex<Vec<u64>>,
}

impl World {
    fn say(&self, what: String) {
        self.said.lock().unwrap().push(what);
    }
}

impl Outside for World {
    fn print(&self, count: u64, words: [u64; 2]) {
        let bytes: Vec<u8> = abi::characters(count, words).collect();
        self.say(format!("print {}", String::from_utf8_lossy(&bytes)));
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

    fn typed(&self) -> (u64, u64) {
        let typed = self.typed.lock().unwrap();
        let mut word = [0; 8];
        let count = typed.len().min(8);
        word[..count].copy_from_slice(&typed[..count]);
        (count as u64, u64::from_le_bytes(word))
    }

    fn took(&self, count: u64) {
        self.typed.lock().unwrap().drain(..count as usize);
    }

    fn allow(&self, allowed: bool) {
        self.say(format!("allow {allowed}"));
    }

    fn unmask(&self) {
        self.say("unmask".to_string());
    }

    fn crashed(&self, number: u32, report: fmt::Arguments<'_>) {
        self.say(format!("{number}: {}", report.to_string().replace('\n', ", ")));
    }
}

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

use std::format;

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

#[test]
fn the_first_event_is_attach() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(5, 0), Step::Done(6, 0)]);
    assert_eq!((access(&service), access(&service)), (5, 6));
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0", "Read 0"]);
    service.reset();
    access(&service);
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0"], "nothing is kept for the next life");
    assert!(said(world).is_empty());
}

#[test]
fn calls_are_served_and_their_results_come_back() {
    let word = u64::from_le_bytes(*b"hello\0\0\0");
    let calls = [
        Step::Done(0, 0),
        Step::Call(Call::Print, [5, word, 0]),
        Step::Call(Call::Alarm, [30, 0, 0]),
        Step::Call(Call::Print, [17, word, 0]),
        Step::Call(Call::Time, [30, 0, 0]),
        Step::Done(1, 0),
    ];
    let (service, world) = service(&calls);
    assert_eq!(access(&service), 1);
    assert_eq!(said(world), ["print hello", "alarm 30"]);
    let results = ["resume Some(0)", "resume Some(7)", "resume Some(18446744073709551615)", "resume Some(9)"];
    assert_eq!(heard(&service)[3..], results);
}

#[test]
fn random_numbers_come_from_outside_and_are_refused_if_there_are_none() {
    let random = Step::Call(Call::Random, [0; 3]);
    let (service, world) = service(&[Step::Done(0, 0), random, random, random, Step::Done(1, 0)]);
    *world.random.lock().unwrap() = vec![6, 5];
    assert_eq!(access(&service), 1);
    assert_eq!(
        heard(&service)[3..],
        ["resume Some(5)", "resume Some(6)", "resume Some(18446744073709551615)"]
    );
}

#[test]
fn lines_take_effect_when_they_change() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(0, 1), Step::Done(0, 1), Step::Done(0, 2)]);
    (0..3).for_each(|_| {
        access(&service);
    });
    assert_eq!(said(world), ["lines 1 1", "lines 3 2"]);
}

#[test]
fn a_crash_costs_the_guest_nothing_but_time() {
    let (service, world) = service(&[Step::Done(0, 1), Step::Fault, Step::Done(0, 0), Step::Done(4, 0)]);
    assert_eq!(access(&service), 4);
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0", "begin true", "Attach 1", "Read 0"]);
    assert_eq!(said(world), ["lines 1 1", "1: service test did what it must not do, here", "lines 1 0"]);
    assert_eq!(service.figures().crashes, 1);
}

#[test]
fn who_crashes_twice_on_an_event_is_an_absent_device_and_keeps_nothing() {
    let (service, world) =
        service(&[Step::Done(0, 0), Step::Fault, Step::Done(0, 0), Step::Call(Call::Panic, [0; 3])]);
    assert_eq!(access(&service), u64::MAX);
    assert_eq!(said(world)[1], "2: service test gave up, here");
    heard(&service);
    access(&service);
    assert_eq!(heard(&service)[..2], ["begin false", "Attach 0"]);
}

#[test]
fn who_crashes_on_what_it_has_kept_loses_it() {
    let (service, _) = service(&[Step::Done(0, 0), Step::Fault, Step::Fault]);
    assert_eq!(access(&service), u64::MAX);
    heard(&service);
    access(&service);
    assert_eq!(heard(&service)[..2], ["begin false", "Attach 0"]);
}

#[test]
fn interrupts_are_taken_and_the_service_goes_on() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Interrupt, Step::Done(3, 0)]);
    assert_eq!(access_and(&service, &|| {}), (3, 2));
    assert_eq!(heard(&service)[3..], ["resume None", "resume None"]);
    assert!(said(world).is_empty());
}

#[test]
fn who_is_late_has_crashed() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Done(0, 0), Step::Done(8, 0)]);
    service.space.late.store(true, Ordering::Relaxed);
    assert_eq!(access(&service), 8);
    assert_eq!(said(world), ["1: service test took longer than it may, here"]);
}

#[test]
fn a_kill_is_carried_out_once_inside_and_outside() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Done(0, 0), Step::Done(8, 0)]);
    assert_eq!(access_and(&service, &|| service.kill()), (8, 1));
    assert_eq!(said(world), ["1: service test was killed, here"]);
    service.kill();
    access(&service);
    access(&service);
    assert_eq!(service.figures().crashes, 2, "nobody was inside: whoever came next has seen to it, once");
}

#[test]
fn nothing_that_waits_is_left_for_the_next_life() {
    let (service, world) = service(&[]);
    access(&service);
    world.typed.lock().unwrap().extend(b"old");
    service.want(Pending::INPUT);
    service.want(Pending::ALARM);
    service.kill();
    service.reset();
    heard(&service);
    access(&service);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.look(&mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0"]);
    assert_eq!((service.figures().crashes, said(world)), (0, vec![]), "killed was the one of before");
}

#[test]
fn kills_are_no_failures_of_the_service() {
    let steps = [
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Interrupt,
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Done(8, 0),
    ];
    let (service, _) = service(&steps);
    let kills = RefCell::new(3);
    let kill = || {
        *kills.borrow_mut() -= 1;
        service.kill();
    };
    assert_eq!(access_and(&service, &kill), (8, 3), "killed in its event, and twice when it begins");
    assert_eq!((kills.into_inner(), service.figures().crashes), (0, 3));
    let begun: Vec<String> = heard(&service).into_iter().filter(|what| what.starts_with("begin")).collect();
    assert_eq!(begun, ["begin false", "begin true", "begin true", "begin true"], "what is kept stays");
}

#[test]
fn typing_waits_until_there_is_room() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(8, 0), Step::Done(1, 0), Step::Done(0, 0)]);
    world.typed.lock().unwrap().extend(b"0123456789abcdef");
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut Kept(&interrupts, &|| {})) };
    look(&service);
    assert_eq!(*world.typed.lock().unwrap(), b"9abcdef", "eight were taken, then one, then none");
    service.space.steps.lock().unwrap().extend([Step::Done(0, abi::ROOM), Step::Done(7, 0)]);
    access(&service);
    look(&service);
    assert!(world.typed.lock().unwrap().is_empty());
    assert!(said(world).is_empty(), "room is no line");
}

#[test]
fn room_without_taking_anything_is_none() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(0, abi::ROOM), Step::Fault]);
    world.typed.lock().unwrap().extend(b"abc");
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Input 0"], "it is not asked again and again");
    assert_eq!(*world.typed.lock().unwrap(), b"abc");
}

#[test]
fn what_comes_without_end_keeps_nobody_from_the_cpu() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(2, 0)]);
    world.typed.lock().unwrap().extend(b"abcd");
    let mut cpu = Wanted(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut cpu) };
    assert_eq!((heard(&service)[1..].to_vec(), cpu.0), (vec!["Attach 0".to_string(), "Input 0".into()], 1));
    assert!(!service.gate.is_inside(), "others can go inside meanwhile");
    service.space.steps.lock().unwrap().extend([Step::Done(2, 0)]);
    // SAFETY: as above.
    unsafe { service.look(&mut cpu) };
    assert_eq!(heard(&service), ["Input 0"], "the rest comes when it looks again");
    assert!(world.typed.lock().unwrap().is_empty());
    // SAFETY: as above.
    unsafe { service.look(&mut cpu) };
    assert!(heard(&service).is_empty(), "nothing is left");
}

#[test]
fn doorbells_and_alarms_are_events() {
    let (service, _) = service(&[]);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe {
        service.post(Pending::doorbell(5), &mut Kept(&interrupts, &|| {}));
        service.post(Pending::ALARM, &mut Kept(&interrupts, &|| {}));
    }
    assert_eq!(heard(&service)[2..], ["Doorbell 32", "Alarm 9"]);
}

#[test]
fn who_rings_and_finds_nobody_is_inside() {
    let (service, _) = service(&[]);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    let ring = |queue| unsafe { service.ring(queue, &mut Kept(&interrupts, &|| {})) };
    (0..2).for_each(ring);
    assert_eq!(heard(&service)[2..], ["Doorbell 1", "Doorbell 2"]);
    assert!(service.gate.enter());
    [2, 3, 3].into_iter().for_each(ring);
    assert!(heard(&service).is_empty(), "whoever is inside sees to it");
    let pending = service.gate.leave().unwrap();
    // SAFETY: as above.
    unsafe { service.settle(pending, &mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["Doorbell 12"], "each queue once");
    assert!(!service.gate.is_inside());
}

#[test]
fn a_doorbell_is_rung_again_behind_a_crash_and_a_kill() {
    let steps = [
        Step::Done(0, 0),
        Step::Fault,
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Done(0, 0),
    ];
    let (service, _) = service(&steps);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.ring(4, &mut Kept(&interrupts, &|| service.kill())) };
    let rung = heard(&service).iter().filter(|what| *what == "Doorbell 16").count();
    assert_eq!((rung, service.figures().crashes, service.gate.is_inside()), (3, 2, false));
}

#[test]
fn memory_comes_before_all_else_in_each_beginning() {
    let (service, _) = service(&[Step::Done(0, 0), Step::Done(0, 0), Step::Done(0, 0), Step::Fault]);
    let window = |guest| Window { guest, size: 0x1000, ..Window::default() };
    service.attach(0, [window(0x8000), window(0xa000)].to_vec(), None).unwrap();
    access(&service);
    let begun = ["Memory 0", "Memory 1"];
    let all = heard(&service);
    assert_eq!(all[..2], ["attach 0: 2", "begin false"]);
    assert_eq!(all[2..4], begun);
    assert_eq!(all[4..6], ["Attach 0", "Read 0"]);
    assert_eq!(all[6..], ["begin true", begun[0], begun[1], "Attach 1", "Read 0"]);
    service.kill();
    service.detach(0);
    service.reset();
    access(&service);
    assert_eq!(
        heard(&service),
        ["detach 0", "begin false", "Attach 0", "Read 0"],
        "a kill is gone with its life"
    );
}

#[test]
fn a_disk_comes_between_memory_and_the_beginning() {
    let (service, _) = service(&[]);
    let ram = Window { guest: 0x8000, size: 0x1000, ..Window::default() };
    let window = Window { guest: 0xf_0000, size: 0x2000, read_only: true, ..Window::default() };
    let storage = Storage { window, size: 0x1200, name: [1, 2], over: None };
    service.attach(0, [ram].to_vec(), Some(storage)).unwrap();
    access(&service);
    assert_eq!(
        heard(&service),
        [
            "attach 0: 2",
            "begin false",
            "Memory 0",
            &format!("Memory {}", abi::DISK | abi::READ_ONLY),
            "Attach 0",
            "Read 0"
        ]
    );
    let events = core::mem::take(&mut *service.space.events.lock().unwrap());
    assert_eq!(events[1].0, [Kind::Memory as u64, abi::DISK | abi::READ_ONLY, 0x1200, 0xf_1000, 1, 2]);
    assert_eq!(events[2].0, [Kind::Attach as u64, 0, 0x5000, 0, 0, 0], "where its BARs are placed");
    service.detach(0);
    service.reset();
    access(&service);
    assert_eq!(
        heard(&service),
        ["detach 0", "begin false", "Attach 0", "Read 0"],
        "it is gone with its life"
    );
}

/// Behind the memory that is written comes the image that it is over, if there is one.
#[test]
fn what_is_written_over_an_image_comes_with_it() {
    let window = Window { guest: 0xf_0000, size: 0x2000, ..Window::default() };
    let image = Window { guest: 0xf_8000, size: 0x4000, read_only: true, ..Window::default() };
    for (image, place) in [(Some(image), 0xf_9000), (None, 0)] {
        let (service, _) = service(&[]);
        let ram = Window { guest: 0x8000, size: 0x1000, ..Window::default() };
        let over = Some(Over { window: image, length: 0x3200, disk: 0x5000, room: 0x1000 });
        let storage = Storage { window, size: 0x1018, name: [1, 2], over };
        service.attach(0, [ram].to_vec(), Some(storage)).unwrap();
        access(&service);
        assert_eq!(heard(&service)[0], format!("attach 0: {}", 2 + usize::from(image.is_some())));
        let events = core::mem::take(&mut *service.space.events.lock().unwrap());
        assert_eq!(events[0].0[1..4], [0, 0x8000, 0x1000], "one piece of the VM's");
        let memory = Kind::Memory as u64;
        assert_eq!(events[1].0, [memory, abi::DISK, 0x1018, 0xf_1000, 1, 2]);
        assert_eq!(events[2].0, [memory, abi::DISK | abi::IMAGE, 0x3200, place, 0x5000, 0x1000]);
        assert_eq!(events[3].0[0], Kind::Attach as u64);
    }
}

#[test]
fn messages_and_bars_are_refused_where_nothing_is() {
    let call = |call, arguments| Step::Call(call, arguments);
    let (service, world) = service(&[
        Step::Done(0, 0),
        call(Call::Message, [0xfee0_0000, 0x31, 0]),
        call(Call::Message, [0, 0x31, 0]),
        call(Call::Decode, [4, 0x1000, 0x4000]),
        call(Call::Decode, [1, 0, 0]),
        Step::Done(7, 0),
    ]);
    assert_eq!(access(&service), 7);
    let refused = format!("resume {:?}", Some(abi::REFUSED));
    let done = "resume Some(0)".to_string();
    assert_eq!(heard(&service)[3..], [done.clone(), refused.clone(), done, refused]);
    assert_eq!(
        said(world),
        ["message 0: fee00000 31", "message 0: 0 31", "decode 0: 4 1000 4000", "decode 0: 1 0 0"]
    );
}

#[test]
fn more_to_do_is_an_alarm_as_soon_as_may_be() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(1, abi::AGAIN), Step::Done(2, 0)]);
    assert_eq!((access(&service), access(&service)), (1, 2));
    assert_eq!(said(world), ["alarm 0"], "no line of that number");
}

#[test]
fn a_bar_is_where_it_was_put_and_nowhere_else() {
    let leak = |_| -> &'static Service<Script> { Box::leak(Box::new(service(&[]).0)) };
    let [first, second] = [leak(1), leak(2)];
    let doorbells = Doorbells { first: 0x3000, size: 0x1000, by: 0 };
    let mut services = Services::none();
    services.memory.push(Served {
        base: 0x900,
        size: 0x100,
        device: 0,
        doorbells: Doorbells::NONE,
        bell: 0,
        service: first,
    });
    services.bars.push(Bar::new(Served::nowhere(5, doorbells, first)));
    services.bars.push(Bar::new(Served::nowhere(5, doorbells, second)));
    let at = |address| services.at_address(address).map(|(device, offset)| (device.device, offset));
    assert_eq!([0, 0x3000, 1 << 52, (1 << 56) - 1].map(at), [None; 4], "a BAR that is not decoded");
    assert!(services.move_bar(first, 5, 0x4000, 0x4000));
    assert_eq!([0x3fff, 0x4000, 0x7fff, 0x8000].map(at), [None, Some((5, 0)), Some((5, 0x3fff)), None]);
    assert!(!services.move_bar(second, 5, 0x6000, 0x4000), "another one is there");
    assert!(!services.move_bar(second, 5, 0, 0x1000), "a register is there");
    assert!(!services.move_bar(second, 6, 0x1_0000, 0x1000), "it has no such device");
    assert!(services.move_bar(second, 5, 0x8000, 0x4000));
    assert!(services.move_bar(first, 5, 0x1_0000, 0x4000), "where it was it is no more");
    assert_eq!([0x4000, 0x8000, 0x1_0000].map(at), [None, Some((5, 0)), Some((5, 0))]);
    assert!(!services.move_bar(first, 5, 0x8000, 0x4000));
    assert_eq!(at(0x1_0000), None, "who cannot move is nowhere");
    assert!(services.move_bar(second, 5, 0, 0));
    assert_eq!((at(0x8000), at(0x910)), (None, Some((0, 0x10))));
    assert!(services.function(0).is_none() && services.function(1).is_none());
}

#[test]
fn a_bar_that_stays_is_found_all_the_time() {
    let service: &'static Service<Script> = Box::leak(Box::new(service(&[]).0));
    let mut services = Services::none();
    services.bars.push(Bar::new(Served::nowhere(5, Doorbells::NONE, service)));
    assert!(services.move_bar(service, 5, 0x4000, 0x1000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(services.at_address(0x4010).is_some());
            }
        });
        for _ in 0..200_000 {
            assert!(services.move_bar(service, 5, 0x4000, 0x1000));
        }
        done.store(true, Ordering::Relaxed);
        looks.join().unwrap();
    });
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

#[test]
fn members_come_and_go_while_it_runs() {
    let (service, _) = shared(&[]);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 1);
    let memory =
        |member, guest| (Kind::Memory, [abi::member_device(member, 0), guest, 0x1000, guest + 0x1000, 0]);
    let joined =
        |member: u64, kept| (Kind::Attach, [kept, (member + 1) << 12, member, member + 1, 10 * (member + 1)]);
    assert_eq!(events(&service), [memory(1, 0x8000), joined(1, 0)]);
    assert_eq!(heard(&service), ["attach 1: 1", "begin false", "Memory 256", "Attach 0", "Read 257"]);
    service.reset();
    service.attach(0, vec![window(0x9000)], None).unwrap();
    access_of(&service, 1);
    assert_eq!(events(&service), [memory(0, 0x9000), joined(0, 0)], "only what is new");
    assert_eq!(
        heard(&service),
        ["attach 0: 1", "Memory 0", "Attach 0", "Read 257"],
        "it does not begin anew"
    );
    service.detach(1);
    access_of(&service, 0);
    assert_eq!(heard(&service), ["detach 1", "Detach 1", "Read 1"]);
    service.kill();
    access_of(&service, 0);
    access_of(&service, 0);
    assert_eq!(events(&service), [memory(0, 0x9000), joined(0, 1)], "what is kept is for who is there");
    heard(&service);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    service.detach(1);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 0);
    assert_eq!(events(&service), [memory(1, 0x8000), joined(1, 0)], "a life that it never saw");
    heard(&service);
    service.detach(1);
    service.attach(1, vec![window(0xa000)], None).unwrap();
    access_of(&service, 0);
    assert_eq!(
        heard(&service)[2..],
        ["Detach 1", "Memory 256", "Attach 0", "Read 1"],
        "first the old one leaves"
    );
}

#[test]
fn who_has_left_is_told_before_who_has_come() {
    let (service, _) = shared(&[]);
    service.attach(1, vec![window(0x8000)], None).unwrap();
    access_of(&service, 1);
    heard(&service);
    service.detach(1);
    service.attach(0, vec![window(0x9000)], None).unwrap();
    access_of(&service, 0);
    let heard = heard(&service);
    let told: Vec<&str> =
        heard.iter().map(String::as_str).filter(|line| !line.starts_with(['a', 'd'])).collect();
    assert_eq!(told, ["Detach 1", "Memory 0", "Attach 0", "Read 1"]);
}

#[test]
fn who_crashes_a_shared_service_loses_what_is_kept_and_others_do_not() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    events(&service);
    service.space.steps.lock().unwrap().extend([
        Step::Fault,
        Step::Done(0, 0),
        Step::Done(0, 0),
        Step::Fault,
    ]);
    assert_eq!(access_of(&service, 1), u64::MAX);
    assert_eq!(
        events(&service).iter().map(|(_, event)| event[0]).collect::<Vec<_>>(),
        [1, 1],
        "tried once more"
    );
    assert_eq!(said(world).last().unwrap(), "alarm 0", "what others wait for is not forgotten");
    access_of(&service, 0);
    let kept: Vec<_> = events(&service).iter().map(|(_, [kept, _, member, ..])| (*member, *kept)).collect();
    assert_eq!(kept, [(0, 1), (1, 0)]);
    // A member whose beginning crashes it is blamed for that, too.
    service.kill();
    access_of(&service, 0);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0), Step::Fault]);
    access_of(&service, 0);
    let begun: Vec<_> = events(&service).iter().map(|(_, [kept, _, member, ..])| (*member, *kept)).collect();
    assert_eq!(begun, [(0, 1), (1, 1), (0, 1), (1, 0)]);
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

/// The device's events of each beginning: three parts, and that it is ready.
const PARTS: usize = 4;

/// What the hypervisor was asked about the device.
fn of_device(world: &World) -> Vec<String> {
    said(world).into_iter().filter(|what| what.starts_with("allow") || what == "unmask").collect()
}

#[test]
fn a_program_knows_its_device_first_and_then_it_reaches_memory() {
    let mut steps = after(PARTS - 2, Step::Call(Call::Log, [1, 65, 0]));
    steps.extend(after(1, Step::Call(Call::Log, [2, 65, 0])));
    let (service, world) = driver(&steps);
    access_of(&service, 0);
    let part = |number, guest| (Kind::Device, [number, 0x1000, guest + 0x1000, guest, 0]);
    let ready = (Kind::Device, [abi::DEVICE_READY, 7, 8, 0, 0]);
    let parts =
        [part(4, 0), part(abi::DEVICE_CONFIGURATION, 0x2000), part(abi::DEVICE_MEMORY, 0x3000), ready];
    assert_eq!(events(&service)[..PARTS], parts);
    assert_eq!(said(world), ["log 1", "allow true", "log 2", "unmask"], "when it was reset, not before");
    service.attach(1, vec![], None).unwrap();
    access_of(&service, 0);
    assert_eq!(events(&service).len(), 1, "it is told once");
    service.kill();
    access_of(&service, 0);
    let killed = said(world);
    assert_eq!(killed[0], "allow false", "what the life before has left reaches nothing");
    assert_eq!(killed[1], "alarm 0", "nobody else may ever come");
    service.want(Pending::ALARM);
    look(&service);
    assert_eq!(events(&service)[..PARTS], parts, "in each of its lives");
    assert_eq!(said(world), ["allow true", "unmask"]);
}

#[test]
fn a_device_is_silent_while_its_service_has_no_life() {
    let mut steps = after(PARTS - 1, Step::Fault);
    steps.extend(after(PARTS + 1, Step::Fault));
    let (service, world) = driver(&steps);
    access_of(&service, 0);
    assert_eq!(
        of_device(world),
        ["allow true", "allow false", "allow true", "unmask", "allow false"],
        "it crashes on the device, and on the event"
    );
    access_of(&service, 0);
    assert_eq!(of_device(world), ["allow true", "unmask"]);
    let (own, world) = own_driver(&[]);
    access(&own);
    own.detach(0);
    assert_eq!(said(world), ["allow true", "unmask", "allow false"], "the life of its VM is over");
    own.reset();
    assert_eq!(said(world), ["allow false"], "also if it has had none");
}

/// A service that is alone with its VM and drives a device.
fn own_driver(steps: &[Step]) -> (Service<Script>, &'static World) {
    let (mut service, world) = self::service(steps);
    service.drive(Device::new(&[], window(0x2000), window(0x3000), [0; 2])).unwrap();
    heard(&service);
    (service, world)
}

/// The events of a beginning of that one: two parts, that it is ready, and its VM.
const OWN: usize = 4;

#[test]
fn a_device_that_a_vm_has_for_itself_begins_anew_with_the_vm() {
    let (service, world) = own_driver(&[]);
    access(&service);
    // It interrupts while its VM stops, and nobody looks any more.
    service.want(Pending::INTERRUPT);
    service.detach(0);
    said(world);
    service.reset();
    look(&service);
    heard(&service);
    access(&service);
    assert_eq!(heard(&service), ["begin false", "Device 6", "Device 7", "Device 8", "Attach 0", "Read 0"]);
    assert_eq!(said(world), ["allow false", "allow true", "unmask"], "what was left masked is not");
}

#[test]
fn a_device_that_takes_its_time_is_waited_for() {
    let later = || Step::Done(abi::LATER, 0);
    let steps = [after(1, later()), vec![later()], after(1, later())].concat();
    let (service, world) = own_driver(&steps);
    access(&service);
    let device = ["Device 6", "Device 7", "Device 7", "Device 7", "Device 8", "Device 8"];
    assert_eq!(heard(&service)[1..], [&device[..], &["Attach 0", "Read 0"]].concat());
    assert_eq!(
        of_device(world),
        ["allow true", "unmask"],
        "it reaches memory when it is reset, and not before"
    );

    // Who never ends a reset is not driven; who never begins does so in its own time.
    let all = usize::try_from(abi::LATER_EVENTS).unwrap();
    for (first, said) in [(1, &["allow false"][..]), (2, &["allow true", "unmask"])] {
        let steps = [after(first, later()), vec![later(); all - 1]].concat();
        let (service, world) = own_driver(&steps);
        access(&service);
        assert!(heard(&service).ends_with(&["Attach 0".into(), "Read 0".into()]));
        assert_eq!(of_device(world), said);
    }
}

/// The alarm of a program that is alone with its VM is its own, or its device's.
#[test]
fn a_vm_keeps_what_it_has_when_an_alarm_is_the_reason_and_somebody_enters() {
    let (service, world) = own_driver(&[]);
    access(&service);
    heard(&service);
    said(world);
    events(&service);
    let twice = || [after(0, Step::Fault), after(OWN, Step::Fault)].concat();
    service.space.steps.lock().unwrap().extend(twice());
    service.want(Pending::ALARM);
    look(&service);
    assert_eq!(said(world).last().unwrap(), "alarm 0");
    access(&service);
    let attached = events(&service).into_iter().filter(|(kind, _)| *kind == Kind::Attach);
    assert!(attached.map(|(_, [kept, ..])| kept).all(|kept| kept == 1));
    // Again, and it goes without.
    service.space.steps.lock().unwrap().extend(twice());
    service.want(Pending::ALARM);
    look(&service);
    heard(&service);
    access(&service);
    assert!(heard(&service).iter().all(|what| !what.starts_with("Device")));
}

#[test]
fn a_vm_keeps_what_it_has_when_the_device_is_the_reason_of_a_crash() {
    for crashes in [after(0, Step::Fault), after(1, Step::Fault), after(2, Step::Fault)] {
        let (service, world) = own_driver(&[]);
        service.kill();
        access(&service);
        said(world);
        service.space.steps.lock().unwrap().extend(crashes);
        access(&service);
        let attached = events(&service).into_iter().filter(|(kind, _)| *kind == Kind::Attach);
        assert_eq!(attached.map(|(_, [kept, ..])| kept).collect::<Vec<_>>(), [0, 1]);
        assert!(of_device(world).ends_with(&["allow true".into(), "unmask".into()]));
    }
}

#[test]
fn a_vm_keeps_what_it_has_when_an_interrupt_is_the_reason_and_somebody_enters() {
    let (service, world) = own_driver(&[]);
    access(&service);
    heard(&service);
    said(world);
    events(&service);
    let twice = || [after(0, Step::Fault), after(OWN, Step::Fault)].concat();
    service.space.steps.lock().unwrap().extend(twice());
    interrupt(&service);
    assert_eq!(said(world).last().unwrap(), "alarm 0", "what is on its way comes after all");
    service.want(Pending::ALARM);
    look(&service);
    let attached = events(&service).into_iter().filter(|(kind, _)| *kind == Kind::Attach);
    assert_eq!(attached.map(|(_, [kept, ..])| kept).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(said(world), ["allow true", "unmask"]);
    // Again: it cannot bear it. The next life tries anew.
    service.space.steps.lock().unwrap().extend(twice());
    interrupt(&service);
    access(&service);
    let is_told = |service: &Service<Script>| events(service).iter().any(|(kind, _)| *kind == Kind::Device);
    assert!(is_told(&service), "the second try of the interrupt");
    service.kill();
    access(&service);
    assert!(!is_told(&service));
    service.reset();
    access(&service);
    assert!(is_told(&service));
}

#[test]
fn a_device_that_is_given_up_on_an_alarm_is_awaited() {
    let (service, world) = own_driver(&[]);
    access(&service);
    said(world);
    for first in [0, OWN] {
        let twice = [after(first, Step::Fault), after(OWN, Step::Fault)].concat();
        service.space.steps.lock().unwrap().extend(twice);
        service.want(Pending::ALARM);
        look(&service);
        assert_eq!(said(world).last().unwrap(), "alarm 0", "its guest is to be told that it fails");
    }
}

#[test]
fn a_device_is_awaited_behind_a_crash_on_its_vms_event() {
    let (service, world) = own_driver(&[]);
    access(&service);
    said(world);
    service.space.steps.lock().unwrap().extend([after(0, Step::Fault), after(OWN, Step::Fault)].concat());
    assert_eq!(access(&service), u64::MAX);
    assert_eq!(said(world).last().unwrap(), "alarm 0");
    let (without, world) = self::service(&after(1, Step::Fault));
    without.space.steps.lock().unwrap().extend(after(1, Step::Fault));
    assert_eq!(access(&without), u64::MAX);
    assert!(said(world).iter().all(|what| !what.starts_with("alarm")));
}

#[test]
fn a_service_that_cannot_bear_its_device_goes_without() {
    let steps = [after(1, Step::Fault), after(PARTS - 1, Step::Fault)].concat();
    let (service, world) = driver(&steps);
    access_of(&service, 0);
    assert_eq!(of_device(world), ["allow false", "allow true", "allow false"]);
    service.space.steps.lock().unwrap().extend(after(1, Step::Done(7, 0)));
    assert_eq!(access_of(&service, 0), 7, "members have it");
    heard(&service);
    service.kill();
    (0..2).for_each(|_| _ = access_of(&service, 0));
    assert!(heard(&service).iter().all(|what| !what.starts_with("Device")), "for ever");
    assert_eq!(of_device(world), ["allow false"]);
}

#[test]
fn a_device_that_nobody_drives_reaches_nothing() {
    for (step, said) in [(PARTS - 2, &["allow false"][..]), (PARTS - 1, &["allow true", "allow false"])] {
        let (service, world) = driver(&after(step, Step::Done(abi::UNDRIVEN, 0)));
        access_of(&service, 0);
        assert_eq!(of_device(world), said, "and never interrupts");
    }
}

/// Its device interrupts, and somebody looks.
fn interrupt(service: &Service<Script>) {
    service.want(Pending::INTERRUPT);
    look(service);
}

#[test]
fn an_interrupt_of_a_device_is_unmasked_when_it_is_handled_and_blames_no_member() {
    let (service, world) = driver(&[]);
    access_of(&service, 0);
    heard(&service);
    said(world);
    interrupt(&service);
    assert_eq!(heard(&service), ["Interrupt 9"]);
    assert_eq!(said(world), ["unmask"]);
    service.space.steps.lock().unwrap().push_back(Step::Done(abi::UNDRIVEN, 0));
    interrupt(&service);
    assert_eq!(said(world), [""; 0], "nobody drives it: it would interrupt without end");
    events(&service);
    let twice = [after(0, Step::Fault), after(PARTS + 1, Step::Fault)].concat();
    service.space.steps.lock().unwrap().extend(twice);
    interrupt(&service);
    let crashed = said(world);
    assert_eq!(crashed.last().unwrap(), "alarm 0", "somebody enters it");
    assert!(crashed.ends_with(&["allow false".into(), crashed[crashed.len() - 2].clone(), "alarm 0".into()]));
    access_of(&service, 0);
    assert_eq!(of_device(world), ["allow true", "unmask"], "when it can handle it");
    let kept = events(&service).into_iter().filter(|(kind, _)| *kind == Kind::Attach);
    assert_eq!(kept.map(|(_, [kept, ..])| kept).collect::<Vec<_>>(), [1, 1], "members keep what they have");
}

#[test]
fn an_interrupt_that_is_to_come_later_is_unmasked_behind_the_next_alarm() {
    let (service, world) = driver(&[]);
    access_of(&service, 0);
    said(world);
    service.space.steps.lock().unwrap().push_back(Step::Done(abi::LATER, 0));
    interrupt(&service);
    access_of(&service, 0);
    assert_eq!(said(world), [""; 0]);
    for unmasked in [&["unmask"][..], &[]] {
        service.want(Pending::ALARM);
        look(&service);
        assert_eq!(said(world), unmasked);
    }
    // A new life has nothing to wait for.
    service.space.steps.lock().unwrap().push_back(Step::Done(abi::LATER, 0));
    interrupt(&service);
    service.kill();
    access_of(&service, 0);
    access_of(&service, 0);
    assert_eq!(of_device(world), ["allow false", "allow true", "unmask"]);
    service.want(Pending::ALARM);
    look(&service);
    assert_eq!(of_device(world), [""; 0]);
}

#[test]
fn who_drives_no_device_is_never_told_of_one() {
    let (service, world) = shared(&[Step::Done(0, 0), Step::Fault]);
    service.attach(0, vec![], None).unwrap();
    access_of(&service, 0);
    assert!(said(world).iter().all(|what| !what.starts_with("allow") && what != "unmask"));
    assert!(events(&service).iter().all(|(kind, _)| *kind != Kind::Device));
}

/// A CPU of a vCPU of this VM: what of its messages it has taken.
struct Own<'a>(u8, &'a RefCell<Vec<(u64, u64)>>);

impl Meanwhile for Own<'_> {
    fn interrupt(&mut self) {}

    fn wait(&mut self) {
        panic!("nobody else is there");
    }

    fn again(&mut self) {}

    fn message(&mut self, vm: u8, address: u64, data: u64) -> bool {
        let is_own = vm == self.0 && address != 0;
        if is_own {
            self.1.borrow_mut().push((address, data));
        }
        is_own
    }
}

#[test]
fn a_message_for_the_vcpu_on_this_cpu_goes_no_further() {
    let answer = |member, address| Step::Answer(abi::Answer::default().with_message(member, address, 0x31));
    let call = Step::Call(Call::Message, [0xfee0_0000, 0x32, 1]);
    let (service, world) = shared(&[Step::Done(0, 0), Step::Done(0, 0)]);
    service.attach(1, vec![], None).unwrap();
    service.attach(2, vec![], None).unwrap();
    access_of(&service, 1);
    let steps = [answer(1, 0xfee0_0000), answer(2, 0xfee0_0000), answer(1, 0), answer(0, 0xfee0_0000), call];
    service.space.steps.lock().unwrap().extend(steps);
    let taken = RefCell::new(vec![]);
    for _ in steps {
        // SAFETY: the script needs no CPU. Member 1 is of VM 2.
        unsafe { service.access(&READ, &mut Own(2, &taken)) };
    }
    assert_eq!(taken.into_inner(), [(0xfee0_0000, 0x31), (0xfee0_0000, 0x32)]);
    assert_eq!(said(world), ["message 2: fee00000 31", "message 1: 0 31"], "who is not there gets none");
}

#[test]
fn a_device_that_is_no_function_asks_no_cpu_for_a_message() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Call(Call::Message, [0xfee0_0000, 0x31, 0])]);
    for vm in 0..=u8::MAX {
        let taken = RefCell::new(vec![]);
        // SAFETY: the script needs no CPU.
        unsafe { service.access(&READ, &mut Own(vm, &taken)) };
        assert!(taken.into_inner().is_empty());
        service.space.steps.lock().unwrap().push_back(Step::Call(Call::Message, [0xfee0_0000, 0x31, 0]));
    }
    assert_eq!(said(world).len(), 256, "whether it may is for others to say");
}

#[test]
fn an_answer_takes_a_message_along() {
    let answer = |member, count| {
        let answer = abi::Answer { lines: 1, ..abi::Answer::default() };
        Step::Answer(abi::Answer { count, ..answer.with_message(member, 0xfee0_0000, 0x31) })
    };
    let members = [1, 0, abi::MEMBERS, u64::from(u32::MAX)];
    let steps = members.map(|member| answer(member, 0));
    let (service, world) = shared(&[Step::Done(0, 0)]);
    service.attach(1, vec![], None).unwrap();
    access_of(&service, 1);
    service.space.steps.lock().unwrap().extend(steps);
    for _ in members {
        access_of(&service, 1);
    }
    assert_eq!(said(world), ["message 1: fee00000 31", "lines 1 1"], "the others are not there");
    // Characters are no message.
    service.space.steps.lock().unwrap().extend([answer(1, 1), answer(1, 0)]);
    access_of(&service, 1);
    assert!(said(world).is_empty());
    access_of(&service, 1);
    assert_eq!(said(world), ["message 1: fee00000 31"], "each time");
}

#[test]
fn a_shared_service_reaches_who_is_there_alone_and_no_console() {
    let call = |call, arguments| Step::Call(call, arguments);
    let (service, world) = shared(&[
        Step::Done(0, 0),
        call(Call::Message, [0xfee0_0000, 0x31, 1]),
        call(Call::Message, [0xfee0_0000, 0x31, 2]),
        call(Call::Message, [0xfee0_0000, 0x31, u64::MAX]),
        call(Call::Decode, [abi::member_device(1, 4), 0x1000, 0x4000]),
        call(Call::Decode, [abi::member_device(0, 4), 0x1000, 0x4000]),
        call(Call::Print, [1, 0x41, 0]),
        Step::Done(7, 0),
    ]);
    service.attach(1, vec![], None).unwrap();
    assert_eq!(access_of(&service, 1), 7);
    assert_eq!(said(world), ["message 1: fee00000 31", "decode 1: 4 1000 4000"]);
    let refused = format!("resume {:?}", Some(abi::REFUSED));
    assert_eq!(heard(&service).iter().filter(|what| **what == refused).count(), 4);
}

#[test]
fn what_waits_for_a_shared_service_outlives_who_leaves() {
    let (service, _) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    // Somebody rings while another leaves.
    service.alone(|| assert!(!service.rings(4)));
    service.detach(1);
    look(&service);
    assert_eq!(heard(&service), ["detach 1", "Detach 1", "Doorbell 16"]);
}

#[test]
fn nothing_reaches_who_has_left() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    service.detach(1);
    let message = Step::Call(Call::Message, [0xfee0_0000, 0x31, 1]);
    let decode = Step::Call(Call::Decode, [abi::member_device(1, 4), 0x1000, 0x4000]);
    service.space.steps.lock().unwrap().extend([message, decode, Step::Done(0, 0)]);
    access_of(&service, 0);
    assert!(said(world).is_empty(), "its end is not told yet, and is true");
}

/// Rings in the middle of another's event, and after that.
struct Rings<'a>(&'a Service<Script>, u64);

impl Meanwhile for Rings<'_> {
    fn interrupt(&mut self) {
        assert!(!self.0.rings(self.1), "somebody is inside");
    }

    fn wait(&mut self) {
        panic!("nobody else is there");
    }

    fn again(&mut self) {
        panic!("it is another member's");
    }
}

#[test]
fn who_rings_without_end_keeps_no_other_member_from_its_guest() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    service.space.steps.lock().unwrap().extend([
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Done(0, 0),
    ]);
    let event = Event::new(Kind::Read, [abi::member_device(0, 1), 0, 1, 0, 0]);
    // SAFETY: the script needs no CPU.
    unsafe { service.access(&event, &mut Rings(&service, 5)) };
    assert_eq!(
        heard(&service),
        ["Read 1", "resume None", "Doorbell 32", "resume None"],
        "once it is handled"
    );
    assert!(!service.gate.is_inside());
    assert_eq!(said(world), ["call 2"], "then it is called itself");
    look(&service);
    assert_eq!(heard(&service), ["Doorbell 32"]);
}

#[test]
fn what_a_member_has_rung_that_pauses_is_handled_by_another() {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    service.space.steps.lock().unwrap().extend([Step::Interrupt, Step::Done(0, 0)]);
    // Member 1 rings while another is inside and handles what was there before, and pauses.
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::ALARM, &mut Rings(&service, 5)) };
    assert_eq!(said(world), ["call 2"], "it is called alone");
    heard(&service);
    access_of(&service, 0);
    assert_eq!(heard(&service), ["Read 1"], "who comes for something else leaves it");
    look(&service);
    assert_eq!(heard(&service), ["Doorbell 32"], "who was woken does not");
}

#[test]
fn a_device_of_another_member_rings_its_own_queues() {
    let first: &'static Service<Script> = Box::leak(Box::new(service(&[]).0));
    let doorbells = Doorbells { first: 0x100, size: 12, by: turnstile_service::image::BY_PLACE };
    let served = Served { bell: 8, ..Served::nowhere(5, doorbells, first) };
    assert_eq!([0x100, 0x108, 0x10c].map(|offset| served.queue(offset, 0)), [Some(8), Some(10), None]);
}

#[test]
fn many_crashes_are_not_all_reported() {
    let (service, world) = service(&[Step::Fault; 100]);
    (0..50).for_each(|_| {
        access(&service);
    });
    assert_eq!((service.figures().crashes, said(world).len()), (100, 11), "1 to 8, 16, 32, 64");
}

#[test]
fn exits_are_counted_where_statistics_are_kept() {
    let page = Box::leak(Box::new(turnstile_exitstat::Page::new(1)));
    let (service, _) = service(&[]);
    let mut timing = Timing::new(Some(page));
    timing.begin(Reason::DataAbort, || 100);
    service.account(&mut timing, Reason::Service, || 130);
    timing.end(|| 150);
    assert_eq!(
        (page.record(Reason::Service).read().total, page.record(Reason::DataAbort).read().count()),
        (50, 0)
    );
    service.account(&mut timing, Reason::Doorbell, || 110);
    assert_eq!(service.figures(), Figures { crashes: 0, exits: 2, ticks: 40 });
    service.account(&mut Timing::new(None), Reason::Service, || unreachable!("nobody looks at the time"));
    service.kill();
    access(&service);
    assert_eq!(service.figures(), Figures { crashes: 1, exits: 2, ticks: 40 });
    service.reset();
    assert_eq!(service.figures(), Figures { crashes: 1, exits: 0, ticks: 0 }, "crashes are the machine's");
}
