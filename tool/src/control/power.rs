// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile start`, `stop`, `restart`, `pause` and `resume`: commands for the VMs of a machine that runs. Each returns when it is done.
//! `kill-service` and `balloon` return when the hypervisor has accepted them.

use std::time::{Duration, Instant};

use super::client::Client;
use super::find::find;
use super::protocol::Request;
use super::state::{Machine, State, Vm};
use crate::cli;
use crate::failure::{Failure, Result};
use crate::layout::Layout;

/// How long a command may take to show.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked.
const TICK: Duration = Duration::from_millis(50);

/// `start`
pub fn start(layout: &Layout, options: &cli::OfMachine) -> Result<()> {
    let request = Request::Start { vm: options.vm.clone() };
    command(layout, options, &request, |before, now| !before.state.is_down() || now.starts > before.starts)
}

/// `restart`
pub fn restart(layout: &Layout, options: &cli::OfMachine) -> Result<()> {
    let request = Request::Restart { vm: options.vm.clone() };
    command(layout, options, &request, |before, now| now.starts > before.starts)
}

/// `stop`
pub fn stop(layout: &Layout, options: &cli::OfMachine) -> Result<()> {
    let request = Request::Stop { vm: options.vm.clone() };
    command(layout, options, &request, |_, now| now.state.is_down())
}

/// `kill-service`
pub fn kill_service(layout: &Layout, options: &cli::KillService) -> Result<()> {
    let mut client = find(layout, Some(&options.machine), "by its whole name or its process number")?;
    let request = Request::KillService { service: options.service.clone() };
    client.ask::<()>(&request)?.ok_or_else(|| ended(&client))
}

/// `balloon`
pub fn balloon(layout: &Layout, options: &cli::Balloon) -> Result<()> {
    let mut client = find(layout, Some(&options.machine), "by its whole name or its process number")?;
    let request = Request::Balloon { vm: options.vm.clone(), bytes: options.size };
    client.ask::<()>(&request)?.ok_or_else(|| ended(&client))
}

/// `pause`
pub fn pause(layout: &Layout, options: &cli::OfMachine) -> Result<()> {
    let request = Request::Pause { vm: options.vm.clone() };
    command(layout, options, &request, |before, now| match now.state {
        State::Running | State::Pausing => before.state != State::Running || now.starts != before.starts,
        _ => true,
    })
}

/// `resume`
pub fn resume(layout: &Layout, options: &cli::OfMachine) -> Result<()> {
    let request = Request::Resume { vm: options.vm.clone() };
    command(layout, options, &request, |before, now| {
        !before.state.is_paused() || !now.state.is_paused() || now.starts != before.starts
    })
}

/// Sends the request, and waits until the VMs that are meant are as `done` says, or the machine has ended.
fn command(
    layout: &Layout,
    options: &cli::OfMachine,
    request: &Request,
    done: fn(&Vm, &Vm) -> bool,
) -> Result<()> {
    let mut client = find(layout, Some(&options.machine), "by its whole name or its process number")?;
    let Some(before) = vms(&mut client)? else { return Err(ended(&client)) };
    let answered = client.ask::<()>(request)?.is_some();
    match request {
        Request::Stop { vm: None } => {
            return if client.wait_for_end(PATIENCE)? { Ok(()) } else { Err(late(&client.machine)) };
        }
        // A machine whose last VM was stopped may end before it has answered.
        Request::Stop { .. } => {}
        _ if !answered => return Err(ended(&client)),
        _ => {}
    }
    let is_meant = |vm: &&Vm| options.vm.as_ref().is_none_or(|name| *name == vm.name);
    let begin = Instant::now();
    loop {
        // A machine whose last VM has stopped ends.
        let Some(now) = vms(&mut client)? else { return Ok(()) };
        if let Some((vm, why)) =
            now.iter().filter(is_meant).find_map(|vm| Some((&vm.name, vm.failure.as_ref()?)))
            && !matches!(request, Request::Stop { .. })
        {
            return Err(Failure::failed(format!("VM `{vm}` does not start: {why}")));
        }
        if before.iter().zip(&now).filter(|(_, now)| is_meant(now)).all(|(before, now)| done(before, now)) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(late(options.vm.as_ref().unwrap_or(&client.machine)));
        }
        std::thread::sleep(TICK);
    }
}

fn vms(client: &mut Client) -> Result<Option<Vec<Vm>>> {
    Ok(client.ask::<Machine>(&Request::List { memory: false })?.map(|machine| machine.vms))
}

fn ended(client: &Client) -> Failure {
    Failure::failed(format!("{} has just ended", client.machine))
}

fn late(name: &str) -> Failure {
    let what = format!("{name} was told, and has not done it for {} s", PATIENCE.as_secs());
    Failure::failed(what).help("`turnstile ls` shows what its VMs do")
}
