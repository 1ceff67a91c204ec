// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that drive a device of the machine's.

use super::*;

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
    assert_eq!(said(world), ["allow false"], "nobody drives it: it would interrupt without end");
    service.space.steps.lock().unwrap().push_back(Step::Done(abi::UNDRIVEN, 0));
    service.want(Pending::ALARM);
    look(&service);
    assert_eq!(said(world), ["allow false"], "it may still be at work");
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
