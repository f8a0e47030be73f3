// Lets one tab of a browser work for all tabs that belong together: it leads, and the others hear what it says. A lock of the
// browser says who leads, so the next tab takes over at once when the leader is closed or dies. Where a page has no locks (plain
// HTTP to another host), each tab leads only itself. This file deliberately does not know what a tab leads.

// `key`: what tabs that belong together have in common. `lead()`: this tab leads from now on; `follow()`: another tab has taken
// over; `hear(message)`: what another tab has said.
export function joinTabs(key, { lead, follow, hear }) {
  let channel = null;
  let leads = false;
  // Ends the wait for the lock; each request has its own.
  let wait = null;
  let release = null;

  async function ask(options) {
    wait?.abort();
    const mine = new AbortController();
    wait = mine;
    const hold = () => {
      if (wait !== mine) return null;
      leads = true;
      lead();
      return new Promise((resolve) => { release = resolve; });
    };
    try {
      // A request that steals the lock must not have a signal.
      await navigator.locks.request(key, options.steal ? options : { signal: mine.signal }, hold);
    } catch {
      // Another tab has stolen it, or this one waits no longer; or the browser keeps its locks from this page.
    }
    if (wait !== mine) return;
    if (leads) {
      leads = false;
      follow();
      ask({});
    } else hold();
  }

  if (navigator.locks) {
    channel = new BroadcastChannel(key);
    channel.onmessage = ({ data }) => hear(data);
    ask({});
  } else {
    leads = true;
    lead();
  }

  return {
    leads: () => leads,
    say: (message) => channel?.postMessage(message),
    takeOver: () => ask({ steal: true }),
    leave() {
      wait?.abort();
      wait = null;
      leads = false;
      release?.();
      channel?.close();
    },
  };
}
