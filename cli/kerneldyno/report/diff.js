// Differences of two texts by lines, after Myers (1986): the fewest insertions and deletions, found greedily.

// More changed lines than this are not compared one by one: the time grows with their square.
const MOST_CHANGES = 2000;

// Rows [sign, number in a, number in b, text]: sign is " ", "-" or "+"; numbers count from 1, and are 0 where there is none.
function differences(a, b) {
  const old = a.split("\n"), now = b.split("\n");
  let start = 0, oldEnd = old.length, nowEnd = now.length;
  while (start < oldEnd && start < nowEnd && old[start] === now[start]) start += 1;
  while (oldEnd > start && nowEnd > start && old[oldEnd - 1] === now[nowEnd - 1]) { oldEnd -= 1; nowEnd -= 1; }
  const rows = [];
  for (let i = 0; i < start; i += 1) rows.push([" ", i + 1, i + 1, old[i]]);
  let i = start, j = start;
  for (const [x, y] of commonPairs(old.slice(start, oldEnd), now.slice(start, nowEnd))) {
    for (; i < start + x; i += 1) rows.push(["-", i + 1, 0, old[i]]);
    for (; j < start + y; j += 1) rows.push(["+", 0, j + 1, now[j]]);
    if (i < oldEnd) { rows.push([" ", i + 1, j + 1, old[i]]); i += 1; j += 1; }
  }
  for (; i < old.length; i += 1, j += 1) rows.push([" ", i + 1, j + 1, old[i]]);
  return rows;
}

// The pairs of equal lines on a shortest path, in order, and the end of both; the end alone where too much changed.
function commonPairs(a, b) {
  const trace = shortestPath(a, b);
  const pairs = [[a.length, b.length]];
  if (trace === null) return pairs;
  let x = a.length, y = b.length;
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const reached = trace[d], k = x - y;
    const down = k === -d || (k !== d && at(reached, d, k - 1) < at(reached, d, k + 1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : at(reached, d, fromK), fromY = d === 0 ? 0 : fromX - fromK;
    while (x > fromX && y > fromY) { x -= 1; y -= 1; pairs.push([x, y]); }
    x = fromX;
    y = fromY;
  }
  return pairs.reverse();
}

// For each number of changes d, how far the diagonals -d .. d were reached with one change less; null beyond the limit.
function shortestPath(a, b) {
  const most = Math.min(a.length + b.length, MOST_CHANGES);
  const far = new Int32Array(2 * most + 3), middle = most + 1, trace = [];
  for (let d = 0; d <= most; d += 1) {
    trace.push(far.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far[middle + k - 1] < far[middle + k + 1]);
      let x = down ? far[middle + k + 1] : far[middle + k - 1] + 1, y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x += 1; y += 1; }
      far[middle + k] = x;
      if (x >= a.length && y >= b.length) return trace;
    }
  }
  return null;
}

function at(reached, d, k) {
  return reached[d + 1 + k];
}
