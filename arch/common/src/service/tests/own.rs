// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that have a CPU of their own.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::service::server::Server;

/// The time when nothing was done for long enough.
const LATER: u64 = 1 << 40;

/// A CPU of services: what it has done.
#[derive(Default)]
struct Cpu<'a> {
    time: u64,
    stops: u32,
    interrupts: u32,
    interrupted: Option<&'a dyn Fn()>,
}

impl Meanwhile for Cpu<'_> {
    fn interrupt(&mut self) {
        self.interrupts += 1;
        self.interrupted.iter().for_each(|act| act());
    }

    fn wait(&mut self) {
        panic!("nobody else is ever inside");
    }

    fn again(&mut self) {
        panic!("nobody else handles it");
    }
}

impl Idle for Cpu<'_> {
    fn stop(&mut self) {
        self.stops += 1;
    }

    fn now(&self) -> u64 {
        self.time
    }
}

/// Somebody else's CPU: what happens while it waits.
struct Elsewhere<'a>(&'a mut dyn FnMut());

impl Meanwhile for Elsewhere<'_> {
    fn interrupt(&mut self) {}

    fn wait(&mut self) {
        self.0();
    }

    fn again(&mut self) {
        panic!("its CPU handles it");
    }
}

/// A service on a CPU of its own, whose VM runs.
fn own(steps: &[Step]) -> (&'static Service<Script>, &'static World) {
    let (service, world) = service(steps);
    let service: &'static Service<Script> = Box::leak(Box::new(service.on_own_cpu()));
    service.release();
    world.said.lock().unwrap().clear();
    (service, world)
}

fn step(services: &[&'static Service<Script>], cpu: &mut Cpu<'_>) {
    // SAFETY: the script needs no CPU.
    unsafe { Server::new(services).step(cpu) };
}

fn ring(service: &Service<Script>, queue: u64) {
    // SAFETY: as above.
    unsafe { service.ring(queue, &mut Elsewhere(&mut || panic!("a doorbell waits for nobody"))) };
}

fn said(world: &World) -> Vec<String> {
    core::mem::take(&mut *world.said.lock().unwrap())
}

fn heard(service: &Service<Script>) -> Vec<String> {
    core::mem::take(&mut *service.space().heard.lock().unwrap())
}

#[test]
fn who_rings_goes_on_at_once_and_wakes_a_cpu_that_sleeps() {
    let (service, world) = own(&[]);
    ring(service, 3);
    assert_eq!(heard(service), Vec::<String>::new(), "who rings does not enter");
    ring(service, 4);
    assert_eq!(said(world), ["wake"], "once");
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    step(&[service], &mut cpu);
    assert_eq!(heard(service).last().unwrap(), &format!("Doorbell {}", 1 << 3 | 1 << 4));
    ring(service, 3);
    assert_eq!(said(world), Vec::<String>::new(), "it is awake");
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["Doorbell 8"]);
    assert_eq!(cpu.stops, 0);
    step(&[service], &mut cpu);
    assert_eq!((cpu.stops, cpu.interrupts), (1, 3), "nothing to do, for long enough");
    ring(service, 3);
    assert_eq!(said(world), ["wake"]);
}

#[test]
fn a_cpu_looks_for_a_while_before_it_sleeps() {
    let (service, world) = own(&[]);
    let services = [service];
    let mut server = Server::new(&services);
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    ring(service, 0);
    // SAFETY: the script needs no CPU.
    let mut step = |cpu: &mut Cpu<'_>| unsafe { server.step(cpu) };
    step(&mut cpu);
    cpu.time += 1;
    step(&mut cpu);
    said(world);
    ring(service, 0);
    assert_eq!(said(world), Vec::<String>::new(), "not asleep yet");
    step(&mut cpu);
    assert_eq!(cpu.stops, 0);
    cpu.time += 1 << 20;
    step(&mut cpu);
    assert_eq!(cpu.stops, 1);
    step(&mut cpu);
    assert_eq!(cpu.stops, 2, "what else interrupts it does not keep it awake");
}

#[test]
fn an_access_waits_for_the_answer_of_the_services_cpu() {
    let (service, world) = own(&[Step::Done(0, 0), Step::Done(7, 1)]);
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    let mut waits = 0;
    let mut meanwhile = || {
        waits += 1;
        step(&[service], &mut cpu);
    };
    // SAFETY: the script needs no CPU.
    let answer = unsafe { service.access(&READ, &mut Elsewhere(&mut meanwhile)) };
    assert_eq!((answer.value, waits), (7, 1));
    assert_eq!(heard(service), ["begin false", "Attach 0", "Read 0"]);
    assert_eq!(said(world), ["wake", "lines 1 1"], "its effects come first");
}

#[test]
fn who_crashes_on_an_access_answers_as_an_absent_device() {
    let (service, _) = own(&[Step::Done(0, 0), Step::Fault, Step::Done(0, 0), Step::Fault]);
    let mut cpu = Cpu::default();
    // SAFETY: as above.
    let answer = unsafe { service.value(&READ, &mut Elsewhere(&mut || step(&[service], &mut cpu))) };
    assert_eq!(answer, u64::MAX);
}

#[test]
fn services_of_a_cpu_have_turns() {
    let (first, _) = own(&[]);
    let (second, _) = own(&[]);
    let mut cpu = Cpu::default();
    ring(first, 1);
    ring(second, 2);
    step(&[first, second], &mut cpu);
    for service in [first, second] {
        heard(service);
    }
    // One that is rung whenever it has been looked at.
    for _ in 0..3 {
        ring(first, 1);
        ring(second, 2);
        step(&[first, second], &mut cpu);
        assert_eq!(heard(first), ["Doorbell 2"]);
        assert_eq!(heard(second), ["Doorbell 4"]);
    }
    cpu.time = LATER;
    ring(second, 2);
    step(&[first, second], &mut cpu);
    step(&[first, second], &mut cpu);
    assert_eq!(cpu.stops, 1);
    second.want(Pending::ALARM);
    step(&[first, second], &mut cpu);
    assert_eq!(heard(second), ["Doorbell 4", "Alarm 9"]);
    assert_eq!(heard(first), Vec::<String>::new(), "it sleeps");
}

#[test]
fn what_comes_for_it_from_elsewhere_is_its_cpus() {
    let (service, world) = own(&[]);
    let mut cpu = Cpu::default();
    service.want(Pending::ALARM);
    assert_eq!(said(world), ["wake"]);
    let nobody = RefCell::new(0);
    // SAFETY: as above.
    assert!(!unsafe { service.look(&mut Kept(&nobody, &|| {})) }, "no vCPU has anything to do");
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["begin false", "Attach 0", "Alarm 9"]);
}

#[test]
fn more_to_do_is_done_at_once_but_not_before_others() {
    let again = Step::Answer(abi::Answer { lines: abi::AGAIN, ..abi::Answer::default() });
    let (service, world) = own(&[Step::Done(0, 0), again]);
    let mut cpu = Cpu::default();
    ring(service, 0);
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["begin false", "Attach 0", "Doorbell 1"]);
    assert_eq!(said(world), ["wake"], "no alarm is set");
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["Alarm 9"]);
}

#[test]
fn a_kill_interrupts_its_cpu_whatever_that_does() {
    let (service, world) = own(&[Step::Done(0, 0), Step::Interrupt, Step::Done(0, 0)]);
    ring(service, 0);
    said(world);
    let killed = Cell::new(0);
    let kill = || {
        // The first interrupt is that of the look at what waits.
        killed.set(killed.get() + 1);
        if killed.get() == 2 {
            service.kill();
        }
    };
    let mut cpu = Cpu { interrupted: Some(&kill), ..Cpu::default() };
    step(&[service], &mut cpu);
    assert_eq!(said(world), ["wake", "1: service test was killed, here"]);
    assert_eq!(
        heard(service),
        ["begin false", "Attach 0", "Doorbell 1", "begin true", "Attach 1", "Doorbell 1"],
        "the doorbell is not lost"
    );
    cpu.interrupted = None;
    cpu.time = LATER;
    step(&[service], &mut cpu);
    assert_eq!(cpu.stops, 1);
    service.kill();
    assert_eq!(said(world), ["wake"], "also while it sleeps");
    step(&[service], &mut cpu);
    assert_eq!(said(world), ["2: service test was killed, here"]);
}

#[test]
fn nothing_is_done_for_a_vm_that_does_not_run() {
    let (service, world) = own(&[]);
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    service.hold();
    ring(service, 0);
    step(&[service], &mut cpu);
    assert_eq!((heard(service), cpu.stops), (vec![], 1), "it sleeps all the same");
    said(world);
    service.release();
    assert_eq!(said(world), ["wake"]);
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["begin false", "Attach 0", "Doorbell 1"], "what waited is not lost");
    service.hold();
    ring(service, 0);
    service.detach(0);
    service.reset();
    service.attach(0, vec![Window::default()], None).unwrap();
    service.release();
    heard(service);
    step(&[service], &mut cpu);
    assert_eq!(heard(service), Vec::<String>::new(), "what waited is of a life that is over");
}

#[test]
fn what_a_member_has_rung_for_is_handled_before_it_goes() {
    let (service, _) = shared(&[]);
    let service: &'static Service<Script> = Box::leak(Box::new(service.on_own_cpu()));
    for member in [1, 2] {
        service.attach(member, vec![], None).unwrap();
    }
    ring(service, 4);
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The CPU wakes late, and the other member rings whenever it has been looked at.
            std::thread::sleep(Duration::from_millis(20));
            assert!(!gone.load(Ordering::Relaxed), "the doorbell waits");
            while !gone.load(Ordering::Relaxed) {
                ring(service, 8);
                step(&[service], &mut Cpu::default());
            }
        });
        service.detach(1);
        gone.store(true, Ordering::Relaxed);
    });
    let heard = heard(service);
    let at = |event: &str| heard.iter().position(|heard| heard == event).unwrap();
    assert!(at("Doorbell 272") < at("detach 1"));
    // Nobody waits for one that is not there: its doorbells may wait for ever.
    ring(service, 4);
    service.detach(1);
}

#[test]
fn members_come_and_go_between_events() {
    let (service, world) = shared(&[]);
    let service: &'static Service<Script> = Box::leak(Box::new(service.on_own_cpu()));
    let mut cpu = Cpu::default();
    service.want(Pending::ALARM);
    step(&[service], &mut cpu);
    assert_eq!(heard(service), Vec::<String>::new(), "nobody is there");
    service.attach(1, vec![Window::default()], None).unwrap();
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["attach 1: 1", "begin false", "Memory 256", "Attach 0", "Alarm 9"]);
    ring(service, 4);
    service.attach(2, vec![], None).unwrap();
    service.hold();
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["attach 2: 0", "Attach 0", "Doorbell 16"], "one that pauses is not all");
    service.detach(1);
    service.detach(2);
    ring(service, 4);
    step(&[service], &mut cpu);
    assert_eq!(heard(service), ["detach 1", "detach 2"]);
    assert!(said(world).contains(&"wake".to_string()));
}

/// A shared service whose members' memory is mapped on demand, with a CPU of its own, which does without the first of them.
fn without_a_member() -> (&'static Service<Script>, &'static World) {
    let (service, world) = shared(&[]);
    let service: &'static Service<Script> = Box::leak(Box::new(service.on_own_cpu()));
    let window = Window { on_demand: true, size: 0x4000, ..window(0x1_0000) };
    (0..2).for_each(|member| service.attach(member, vec![window], None).unwrap());
    service.space().steps.lock().unwrap().extend([Step::Done(0, 0); 4]);
    ring_dry(service, world);
    (service, world)
}

/// Rings, and has that miss memory of the first member that is not there.
fn ring_dry(service: &'static Service<Script>, world: &World) {
    service.space().steps.lock().unwrap().push_back(Step::Miss(0x1_1000));
    world.touched.lock().unwrap().push_back(Touch::Dry);
    ring(service, 0);
}

#[test]
fn the_services_cpu_waits_for_no_member() {
    let (service, _) = without_a_member();
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    // It has asked before its memory was missed: both are handled in one turn.
    let read = Event::new(Kind::Read, [abi::member_device(0, 1), 0, 1, 0, 0]);
    // SAFETY: as above.
    unsafe { service.access(&read, &mut Elsewhere(&mut || step(&[service], &mut cpu))) };
    assert_eq!((NOW.get(), heard(service).last().unwrap().as_str()), (9, "Read 1"));
}

#[test]
fn who_reads_a_register_asks_when_its_member_is_back() {
    let (service, _) = without_a_member();
    let mut cpu = Cpu { time: LATER, ..Cpu::default() };
    step(&[service], &mut cpu);
    heard(service);
    let mut asked_at = |member| {
        NOW.set(9);
        let mut asked_at = None;
        let mut pass = || {
            NOW.set(NOW.get() + 5_000_000);
            step(&[service], &mut cpu);
            if heard(service).last().is_some_and(|what| what.starts_with("Read")) {
                asked_at = Some(NOW.get());
            }
        };
        let read = Event::new(Kind::Read, [abi::member_device(member, 1), 0, 1, 0, 0]);
        // SAFETY: as above.
        unsafe { service.access(&read, &mut Elsewhere(&mut pass)) };
        asked_at
    };
    assert_eq!(asked_at(1), Some(5_000_009), "others ask at once");
    assert_eq!(asked_at(0), Some(25_000_009), "nobody has it begin anew more often");
}
