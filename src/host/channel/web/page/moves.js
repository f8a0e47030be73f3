// Knows what has just moved, whatever moved it: a click on it is most likely meant for what was there before. It looks where things
// stand whenever something on the page has changed. What is new beside things that stand still has not moved; beside things that moved
// or went, it took their place.

// What ends an ask when it is pressed, and what stands around it; of a thousand lines only the last, which moves with any other.
const WATCHED = '[data-at-once], .item:last-child, main section';

// A smaller step leads from no button to the next one.
const STEP_PX = 9;

// In the page as it is laid out: somebody who scrolls moves nothing.
function place(node) {
  let [x, y] = [0, 0];
  for (let part = node; part; part = part.offsetParent) {
    x += part.offsetLeft;
    y += part.offsetTop;
  }
  return { x, y };
}

const isNear = (one, other) => Math.abs(one.x - other.x) < STEP_PX && Math.abs(one.y - other.y) < STEP_PX;

export function watchMoves() {
  let places = new Map();
  let waits = false;

  function look() {
    waits = false;
    const before = places;
    // What is hidden has no place.
    places = new Map([...document.querySelectorAll(WATCHED)].filter((node) => node.offsetParent).map((node) => [node, place(node)]));
    const stays = (node) => before.has(node) && places.has(node) && isNear(before.get(node), places.get(node));
    const moves = ![...before.keys()].every(stays);
    for (const [node, now] of places) {
      if (stays(node)) now.since = before.get(node).since;
      else now.since = moves ? performance.now() : -Infinity;
    }
  }

  function changed() {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => waits && look());
  }
  new MutationObserver(changed).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
  // A text field grows with its words, and lines break anew in another window.
  for (const kind of ['input', 'resize']) window.addEventListener(kind, changed);

  return {
    // A click may come before the next frame.
    justMoved(node, withinMs) {
      if (waits) look();
      return performance.now() - (places.get(node)?.since ?? -Infinity) <= withinMs;
    },
    // The page has scrolled by itself: all of it is elsewhere.
    scrolled() {
      look();
      for (const now of places.values()) now.since = performance.now();
    },
  };
}
