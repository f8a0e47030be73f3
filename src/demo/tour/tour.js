// The tour: fills the agents' terminal, marks the places where somebody is asked, and switches between them on a narrow screen.
// It asks for the lines while it is in view, and holds no connection open: a browser has only six for one address.
const LOOK_EVERY_MS = 500;

const lines = document.getElementById('lines');
const marked = (place) => [document.getElementById(place), document.querySelector(`nav [data-show="${place}"]`)];

function make(tag, text, name = '') {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = name;
  return node;
}

function draw(told) {
  if (told.length === lines.childElementCount) return;
  const news = told.slice(lines.childElementCount);
  lines.append(...news.map(({ after, who, what, kind }) => {
    const item = make('p', '', kind);
    item.append(make('time', after), make('b', who), make('span', what));
    return item;
  }));
  lines.scrollTop = lines.scrollHeight;
  for (const place of ['inbox', 'slack', 'phone']) {
    const there = told.filter((line) => line.place === place);
    const open = there.filter((line) => line.kind === 'asks').length > there.filter((line) => line.kind === 'got').length;
    for (const node of marked(place)) node.classList.toggle('calls', open);
  }
}

async function look() {
  if (document.visibilityState !== 'visible') return;
  try {
    draw(await (await fetch('lines')).json());
  } catch {
    document.querySelector('header p').textContent = 'The demo has ended. Start it again with: askd demo';
  }
}

function show(place) {
  document.body.dataset.tab = place;
  for (const button of document.querySelectorAll('nav button')) {
    if (button.dataset.show === place) button.setAttribute('aria-current', 'page');
    else button.removeAttribute('aria-current');
  }
  lines.scrollTop = lines.scrollHeight;
}

for (const button of document.querySelectorAll('nav button')) button.addEventListener('click', () => show(button.dataset.show));
document.addEventListener('visibilitychange', look);
setInterval(look, LOOK_EVERY_MS);
show('inbox');
look();
