// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients hear of a machine, without a machine.

use std::sync::Arc;

use turnstile_link::{Command, Memory, Outcome, Pool, StopReason};

use super::event::{Bytes, Event, Past};
use super::hub::{Hub, Wish};
use super::outbox::Outbox;
use super::protocol::{Answer, Kind, Line, Request};
use super::server::{Asked, Caller};
use super::state::{Machine, State};
use crate::session::Heard;

fn hub() -> Hub {
    Hub::new("m", true, vec!["one".into(), "two".into()])
}

fn console(vm: u8, text: &[u8]) -> Heard {
    Heard::Console { vm, text: text.to_vec() }
}

fn started(vm: u8, boots: u32) -> Heard {
    Heard::Started { vm, boots, free_memory: 0, free_tables: 0 }
}

fn reply(command: Command, outcome: Outcome) -> Heard {
    Heard::Reply { command, outcome }
}

fn ask(hub: &mut Hub, outbox: &Arc<Outbox>, request: Request) -> Vec<Wish> {
    hub.ask(Asked::Request(request, Caller::with(outbox)))
}

fn line(outbox: &Outbox) -> Line {
    serde_json::from_str(&outbox.next().unwrap()).unwrap()
}

fn value<T: serde::de::DeserializeOwned>(outbox: &Outbox) -> T {
    let Line::Answer(Answer::Ok(value)) = line(outbox) else { panic!("it is refused") };
    serde_json::from_value(value).unwrap()
}

fn refused(outbox: &Outbox) -> (Kind, String) {
    let Line::Answer(Answer::Error(refusal)) = line(outbox) else { panic!("it is accepted") };
    (refusal.kind, refusal.what)
}

fn written(vm: &str, text: &str) -> Event {
    Event::Console { vm: vm.into(), bytes: Bytes::of(text.as_bytes()) }
}

/// What the two VMs do.
fn states(hub: &mut Hub, outbox: &Arc<Outbox>) -> [State; 2] {
    ask(hub, outbox, Request::List { memory: false });
    let machine: Machine = value(outbox);
    [machine.vms[0].state, machine.vms[1].state]
}

#[test]
fn the_list_says_what_vms_do() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let states = |hub: &mut Hub| states(hub, &outbox);
    assert_eq!(states(&mut hub), [State::Booting; 2]);
    hub.hear(&started(0, 1));
    hub.hear(&started(1, 1));
    assert_eq!(states(&mut hub), [State::Running; 2]);
    hub.hear(&Heard::Paused { vm: 1 });
    assert_eq!(states(&mut hub), [State::Running, State::Paused]);
    hub.hear(&Heard::Resumed { vm: 1, microseconds: 1 });
    assert_eq!(states(&mut hub), [State::Running; 2]);
    hub.hear(&Heard::Paused { vm: 0 });
    hub.hear(&Heard::Stopped { vm: 0, reason: StopReason::Reset, restarts: true });
    hub.hear(&Heard::Stopped { vm: 1, reason: StopReason::Crash, restarts: false });
    assert_eq!(states(&mut hub), [State::Restarting, State::Crashed]);
    hub.hear(&started(0, 2));
    hub.hear(&Heard::Stopped { vm: 0, reason: StopReason::Killed, restarts: false });
    assert_eq!(states(&mut hub), [State::Stopped, State::Crashed]);
    hub.hear(&Heard::Resumed { vm: 0, microseconds: 1 });
    assert_eq!(states(&mut hub), [State::Stopped, State::Crashed], "it was stopped while it was to go on");
}

#[test]
fn only_what_runs_is_paused_and_only_what_is_paused_goes_on() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let all = |resume| if resume { Request::Resume { vm: None } } else { Request::Pause { vm: None } };
    assert_eq!(ask(&mut hub, &outbox, all(false)), []);
    assert_eq!(refused(&outbox), (Kind::NotNow, "no VM runs".into()));
    hub.hear(&started(0, 1));
    hub.hear(&started(1, 1));
    hub.hear(&Heard::Paused { vm: 0 });
    assert_eq!(ask(&mut hub, &outbox, all(false)), [Wish::Tell(Command::Pause { vm: 1 })]);
    assert!(hub.hear(&reply(Command::Pause { vm: 1 }, Outcome::Accepted)));
    value::<()>(&outbox);
    assert_eq!(states(&mut hub, &outbox), [State::Paused, State::Pausing]);
    let two = || Some("two".to_owned());
    assert_eq!(ask(&mut hub, &outbox, Request::Pause { vm: two() }), []);
    assert_eq!(refused(&outbox), (Kind::NotNow, "VM `two` is pausing".into()));
    // It can be taken back before it is so.
    let resume = Command::Resume { vm: 1 };
    assert_eq!(ask(&mut hub, &outbox, Request::Resume { vm: two() }), [Wish::Tell(resume)]);
    hub.hear(&Heard::Resumed { vm: 1, microseconds: 0 });
    assert!(hub.hear(&reply(resume, Outcome::Accepted)));
    value::<()>(&outbox);
    assert_eq!(states(&mut hub, &outbox), [State::Paused, State::Running]);
    // Whichever is heard first.
    hub.hear(&Heard::Paused { vm: 1 });
    hub.hear(&reply(Command::Pause { vm: 1 }, Outcome::Accepted));
    assert_eq!(states(&mut hub, &outbox), [State::Paused; 2]);
    hub.hear(&Heard::Resumed { vm: 1, microseconds: 5 });
    // A life that has ended takes its pause with it.
    hub.hear(&reply(Command::Pause { vm: 1 }, Outcome::Accepted));
    hub.hear(&reply(resume, Outcome::NotNow));
    assert_eq!(states(&mut hub, &outbox), [State::Paused, State::Running]);
    assert_eq!(ask(&mut hub, &outbox, Request::Pause { vm: Some("one".into()) }), []);
    assert_eq!(refused(&outbox), (Kind::NotNow, "VM `one` is paused".into()));
    assert_eq!(ask(&mut hub, &outbox, all(true)), [Wish::Tell(Command::Resume { vm: 0 })]);
    assert!(hub.hear(&reply(Command::Resume { vm: 0 }, Outcome::NotNow)));
    assert_eq!(refused(&outbox).0, Kind::NotNow);
    hub.hear(&Heard::Resumed { vm: 0, microseconds: 1 });
    assert_eq!(ask(&mut hub, &outbox, all(true)), []);
    assert_eq!(refused(&outbox), (Kind::NotNow, "no VM is paused".into()));
}

#[test]
fn a_guest_is_asked_for_memory_through_its_balloon() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let request = |vm: &str| Request::Balloon { vm: vm.into(), bytes: 128 << 20 };
    let command = Command::Balloon { vm: 1, bytes: 128 << 20 };
    assert_eq!(ask(&mut hub, &outbox, request("two")), [Wish::Tell(command)]);
    assert!(hub.hear(&reply(command, Outcome::Accepted)));
    value::<()>(&outbox);
    for (outcome, kind, what) in [
        (Outcome::NoBalloon, Kind::NoBalloon, "VM `two` has no balloon"),
        (Outcome::NotNow, Kind::NotNow, "VM `two` does not run"),
    ] {
        assert_eq!(ask(&mut hub, &outbox, request("two")), [Wish::Tell(command)]);
        assert!(hub.hear(&reply(command, outcome)));
        assert_eq!(refused(&outbox), (kind, what.into()));
    }
    assert_eq!(ask(&mut hub, &outbox, request("three")), []);
    assert_eq!(refused(&outbox).0, Kind::NoSuchVm);
}

#[test]
fn who_asks_for_memory_gets_what_the_hypervisor_says_then() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let with_memory = || Request::List { memory: true };
    let listed = || {
        let machine: Machine = value(&outbox);
        (machine.vms[0].memory, machine.vms[1].memory, machine.pool)
    };
    assert_eq!(ask(&mut hub, &outbox, with_memory()), [], "it is not there yet");
    assert_eq!(listed(), (None, None, None));
    hub.hear(&started(0, 1));
    assert_eq!(ask(&mut hub, &outbox, with_memory()), [Wish::Tell(Command::Memory)]);
    let memory = |bytes, limit, waits| Memory { bytes, limit, waits };
    hub.hear(&Heard::Memory { vm: 0, memory: memory(4, 8, true) });
    // Others neither wait nor see the half of it.
    ask(&mut hub, &outbox, Request::List { memory: false });
    assert_eq!(listed(), (None, None, None));
    for (vm, limit) in [(2, 1), (255, 0)] {
        hub.hear(&Heard::Memory { vm, memory: memory(1, limit, false) });
    }
    hub.hear(&Heard::Memory { vm: 1, memory: memory(0, 2, false) });
    let pool = Pool { bytes: 16, free: 12 };
    hub.hear(&Heard::Pool(pool));
    assert_eq!(ask(&mut hub, &outbox, with_memory()), [], "it is asked once for all");
    hub.hear(&reply(Command::Memory, Outcome::Accepted));
    for _ in 0..2 {
        assert_eq!(listed(), (Some(memory(4, 8, true)), Some(memory(0, 2, false)), Some(pool)));
    }
    hub.hear(&reply(Command::Memory, Outcome::Accepted));
    ask(&mut hub, &outbox, Request::List { memory: false });
    assert_eq!(listed(), (None, None, None), "what was true before is not told as if it were now");
}

#[test]
fn services_are_listed_and_killed_by_their_names() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let heard = |service, vm, name: &str, crashes| Heard::Service {
        service,
        vm,
        name: name.into(),
        crashes,
        exits: 0,
        ticks: 0,
    };
    let service = |number, vm, name: &str| heard(number, vm, name, 0);
    let kill = |name: &str| Request::KillService { service: name.into() };
    assert_eq!(ask(&mut hub, &outbox, kill("net")), []);
    assert!(refused(&outbox).1.contains("the machine has none"));
    // The hypervisor may introduce itself again.
    for _ in 0..2 {
        hub.hear(&service(0, 1, "console"));
        hub.hear(&service(1, 0, "net"));
    }
    ask(&mut hub, &outbox, Request::List { memory: false });
    let machine: Machine = value(&outbox);
    let services: Vec<_> = machine.services.iter().map(|one| (one.name.as_str(), one.vm.as_str())).collect();
    assert_eq!(services, [("console", "two"), ("net", "one")]);
    hub.hear(&heard(1, 0, "net", 5));
    ask(&mut hub, &outbox, Request::List { memory: false });
    let machine: Machine = value(&outbox);
    assert_eq!(machine.services.iter().map(|one| one.crashes).collect::<Vec<_>>(), [0, 5]);

    let command = Command::KillService { service: 1 };
    assert_eq!(ask(&mut hub, &outbox, kill("net")), [Wish::Tell(command)]);
    assert!(hub.hear(&reply(command, Outcome::Accepted)));
    let _: serde_json::Value = value(&outbox);
    ask(&mut hub, &outbox, kill("net"));
    hub.hear(&reply(command, Outcome::NotNow));
    assert_eq!(refused(&outbox), (Kind::NotNow, "the VM that service `net` serves does not run".into()));
    assert_eq!(ask(&mut hub, &outbox, kill("disk")), []);
    let (kind, what) = refused(&outbox);
    assert!(kind == Kind::NoSuchService && what.contains("the services are console, net"), "{what}");
}

#[test]
fn who_follows_gets_the_past_once_and_then_what_comes() {
    let (mut hub, all, one) = (hub(), Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    hub.hear(&console(0, b"before"));
    hub.hear(&console(1, b"other"));
    ask(&mut hub, &all, Request::Logs { vm: None, follow: true });
    ask(&mut hub, &one, Request::Logs { vm: Some("one".into()), follow: true });
    hub.hear(&console(1, b"two"));
    hub.hear(&console(0, b"behind"));
    let past: Past = value(&all);
    assert_eq!(past.events, [written("one", "before"), written("two", "other")]);
    assert_eq!(line(&all), Line::Event(written("two", "two")));
    assert_eq!(line(&all), Line::Event(written("one", "behind")));
    let past: Past = value(&one);
    assert_eq!(past.events, [written("one", "before")]);
    assert_eq!(line(&one), Line::Event(written("one", "behind")));
}

#[test]
fn a_client_that_does_not_read_and_one_that_has_died_hold_nobody_up() {
    let (mut hub, idle, dead, good) =
        (hub(), Arc::new(Outbox::default()), Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    for outbox in [&idle, &dead, &good] {
        ask(&mut hub, outbox, Request::Logs { vm: None, follow: true });
    }
    dead.close();
    let _: Past = value(&good);
    for _ in 0..10_000 {
        hub.hear(&console(0, &[b'x'; 1000]));
        assert!(matches!(line(&good), Line::Event(Event::Console { .. })));
    }
    let _: Past = value(&idle);
    let mut read = 0;
    let lost = loop {
        match line(&idle) {
            Line::Event(Event::Console { .. }) => read += 1,
            Line::Event(Event::Lost { bytes }) => break bytes,
            other => panic!("{other:?}"),
        }
    };
    assert!(read > 500 && lost > 8_000_000, "{read} lines, {lost} bytes lost");
    assert_eq!(Arc::strong_count(&dead), 1, "the dead client is forgotten");
}

#[test]
fn who_has_left_is_forgotten_also_if_nothing_happens_to_its_vm() {
    let (mut hub, first, second) = (hub(), Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    let follow = || Request::Logs { vm: Some("two".into()), follow: true };
    ask(&mut hub, &first, follow());
    first.close();
    ask(&mut hub, &second, follow());
    assert_eq!(Arc::strong_count(&first), 1, "at the next client");
    second.close();
    hub.hear(&console(0, b"of another VM"));
    assert_eq!(Arc::strong_count(&second), 1, "at the next event");
}

#[test]
fn answers_go_to_the_client_that_asked() {
    let (mut hub, first, second) = (hub(), Arc::new(Outbox::default()), Arc::new(Outbox::default()));
    let stop = Command::Stop { vm: 1 };
    let request = || Request::Stop { vm: Some("two".into()) };
    assert_eq!(ask(&mut hub, &first, request()), [Wish::Tell(stop)]);
    assert_eq!(ask(&mut hub, &second, request()), [Wish::Tell(stop)]);
    assert!(hub.hear(&reply(stop, Outcome::Accepted)));
    assert!(hub.hear(&reply(stop, Outcome::NotNow)));
    assert!(!hub.hear(&reply(stop, Outcome::NotNow)), "that was a key");
    let () = value(&first);
    assert_eq!(refused(&second), (Kind::NotNow, "VM `two` does not run".into()));
}

#[test]
fn without_a_name_all_vms_are_meant() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    let tell = |vm| Wish::Tell(Command::Restart { vm });
    assert_eq!(ask(&mut hub, &outbox, Request::Restart { vm: None }), [tell(0), tell(1)]);
    hub.hear(&reply(Command::Restart { vm: 0 }, Outcome::Accepted));
    hub.hear(&reply(Command::Restart { vm: 1 }, Outcome::Accepted));
    let () = value(&outbox);
    assert_eq!(ask(&mut hub, &outbox, Request::Stop { vm: None }), [Wish::End]);
    let () = value(&outbox);
}

#[test]
fn only_what_is_down_is_started() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    hub.hear(&started(0, 1));
    hub.hear(&started(1, 1));
    assert!(ask(&mut hub, &outbox, Request::Start { vm: Some("one".into()) }).is_empty());
    assert_eq!(refused(&outbox), (Kind::NotNow, "VM `one` is running".into()));
    assert!(ask(&mut hub, &outbox, Request::Start { vm: None }).is_empty());
    assert_eq!(refused(&outbox), (Kind::NotNow, "no VM is stopped".into()));
    hub.hear(&Heard::Stopped { vm: 1, reason: StopReason::PowerOff, restarts: false });
    let started = ask(&mut hub, &outbox, Request::Start { vm: None });
    assert_eq!(started, [Wish::Tell(Command::Restart { vm: 1 })]);
}

#[test]
fn unknown_vms_and_bad_input_are_refused() {
    let (mut hub, outbox) = (hub(), Arc::new(Outbox::default()));
    assert!(ask(&mut hub, &outbox, Request::Stop { vm: Some("tow".into()) }).is_empty());
    let Line::Answer(Answer::Error(refusal)) = line(&outbox) else { panic!("it is accepted") };
    assert_eq!((refusal.kind, refusal.vms), (Kind::NoSuchVm, vec!["one".to_owned(), "two".to_owned()]));
    let bytes = Bytes::Base64("?".into());
    assert!(ask(&mut hub, &outbox, Request::Type { vm: "one".into(), bytes }).is_empty());
    assert_eq!(refused(&outbox).0, Kind::NotUnderstood);
    let typed = ask(&mut hub, &outbox, Request::Type { vm: "two".into(), bytes: Bytes::of(b"\xff") });
    assert_eq!(typed, [Wish::Type { vm: 1, bytes: vec![0xff] }]);
    hub.take_more();
    let () = value(&outbox);
}
