//! Work of untrusted templates within bounds of time and memory.
//!
//! The engine counts steps, but one step may double a string. So the work
//! runs on a thread of its own whose allocations are counted. A thread that
//! takes too much memory is parked for good inside the allocator (an allocator
//! must neither unwind nor fail here), and its caller gets an error: what it
//! holds is lost. One that takes too long is left by its caller in the same
//! way, but may end within an overtime before it is parked: on a machine that
//! is busy for a while, good templates are late too. Callers count the threads
//! that they left and that have not ended, and stop in time.

use crate::failure::{Code, Failure, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX_BYTES: isize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);
/// After its caller has left.
const MAX_OVERTIME: Duration = Duration::from_secs(60);
const STACK_BYTES: usize = 8 << 20;
/// How often a waiting caller looks whether its thread is parked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Between a thread and its caller.
struct Shared {
    /// Set: the thread is parked, or will be at its next allocation.
    stop: AtomicBool,
    /// Who came first: RUNNING, LEFT (its caller went away) or ENDED.
    fate: AtomicU8,
}
const RUNNING: u8 = 0;
const LEFT_ALONE: u8 = 1;
const ENDED: u8 = 2;

thread_local! {
    static LEFT: Cell<isize> = const { Cell::new(0) };
    // Null: allocations are not counted.
    static STOP: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
    // When a thread that was left alone is to be parked.
    static PARK_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

struct Counting;

fn count(bytes: isize) {
    let stop = STOP.get();
    if stop.is_null() {
        return;
    }
    let left = LEFT.get() - bytes;
    LEFT.set(left);
    // SAFETY: STOP points into an Arc that the thread holds while it is set.
    let shared = unsafe { &*stop };
    if left < 0 || PARK_AT.get().is_some_and(|at| Instant::now() > at) {
        shared.stop.store(true, Ordering::Release);
    } else if shared.fate.load(Ordering::Relaxed) == LEFT_ALONE && PARK_AT.get().is_none() {
        PARK_AT.set(Some(Instant::now() + MAX_OVERTIME));
    }
    if shared.stop.load(Ordering::Acquire) {
        loop {
            // SAFETY: waits for a signal; has no other effect.
            unsafe { libc::pause() };
        }
    }
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        System.dealloc(block, layout);
        LEFT.set(LEFT.get() + layout.size() as isize);
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        System.realloc(block, layout, size)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` within the bounds. Where it passes them: RESOURCE_EXHAUSTED,
/// and one more in `lost` until the thread has ended after all.
pub fn run(
    lost: &Arc<AtomicUsize>,
    work: impl FnOnce() -> Result<Vec<u8>> + Send + 'static,
) -> Result<Vec<u8>> {
    run_for(MAX_TIME, lost, work)
}

fn run_for(
    max_time: Duration,
    lost: &Arc<AtomicUsize>,
    work: impl FnOnce() -> Result<Vec<u8>> + Send + 'static,
) -> Result<Vec<u8>> {
    let shared = Arc::new(Shared { stop: AtomicBool::new(false), fate: AtomicU8::new(RUNNING) });
    let theirs = shared.clone();
    let their_lost = lost.clone();
    let (send, receive) = sync_channel(1);
    let body = move || {
        LEFT.set(MAX_BYTES);
        STOP.set(Arc::as_ptr(&theirs));
        let outcome = catch_unwind(AssertUnwindSafe(work));
        STOP.set(std::ptr::null());
        if theirs.fate.swap(ENDED, Ordering::AcqRel) == LEFT_ALONE {
            their_lost.fetch_sub(1, Ordering::Relaxed);
        } else {
            let _ = send.send(outcome);
        }
    };
    let thread = std::thread::Builder::new()
        .name("chat-template".to_string())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map_err(|e| Failure::exhausted(format!("no thread for the chat template: {e}")))?;
    let started = Instant::now();
    loop {
        match receive.recv_timeout(LOOK_EVERY) {
            Ok(outcome) => {
                // It has nothing left to do; the join also tells sanitizers
                // that its memory is ours now.
                let _ = thread.join();
                return outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure {
                    code: Code::Internal,
                    message: "the chat template's thread ended".to_string(),
                })
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let parked = shared.stop.load(Ordering::Acquire);
        if !parked && started.elapsed() <= max_time {
            continue;
        }
        // Counted before the thread can take itself off again.
        lost.fetch_add(1, Ordering::Relaxed);
        let left =
            shared.fate.compare_exchange(RUNNING, LEFT_ALONE, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            lost.fetch_sub(1, Ordering::Relaxed);
            continue; // it has just ended: its outcome is there
        }
        return Err(Failure::exhausted(if parked {
            format!("the chat template takes more than {MAX_BYTES} bytes of memory")
        } else {
            format!("the chat template takes longer than {} s", max_time.as_secs())
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_thread_is_lost_until_it_ends() {
        let lost = Arc::new(AtomicUsize::new(0));
        let (go, wait) = sync_channel::<()>(0);
        let late = run_for(Duration::ZERO, &lost, move || {
            let _ = wait.recv();
            Ok(vec![1u8; 1000])
        });
        assert!(late.is_err());
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        go.send(()).expect("the thread waits");
        while lost.load(Ordering::Relaxed) != 0 {
            std::thread::yield_now();
        }
        assert_eq!(run(&lost, || Ok(vec![7])).ok(), Some(vec![7]));
    }

    #[test]
    fn a_thread_that_took_too_much_stays_lost() {
        let lost = Arc::new(AtomicUsize::new(0));
        let large = run(&lost, || Ok(vec![0u8; MAX_BYTES as usize + 1]));
        assert!(large.is_err());
        assert_eq!(lost.load(Ordering::Relaxed), 1);
    }
}
