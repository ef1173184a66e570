"use strict";
// Without this script the page is complete; only sorting, copying and turning are missing.
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const told = document.getElementById("told");
  const keys = new Map(
    [...body.rows].map((row) => [
      row,
      row.dataset.keys.split(" ").map((word) => (word === "inf" ? Infinity : Number(word))),
    ])
  );

  function sort(column) {
    const head = heads[column];
    const up = head.getAttribute("aria-sort") !== "ascending";
    const sign = up ? 1 : -1;
    const known = (value) => Number.isFinite(value);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [keys.get(a)[column], keys.get(b)[column]];
      // Cells without a number come last in both orders; ties keep the order of components.
      if (known(x) !== known(y)) return known(x) ? -1 : 1;
      const apart = known(x) ? sign * (x - y) : 0;
      return apart || keys.get(a)[0] - keys.get(b)[0];
    });
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows);
    told.textContent = `Sorted by ${head.textContent}, ${up ? "smallest" : "largest"} first.`;
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
  });

  async function copy(button, code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = told.textContent = "Copied";
    } catch {
      // A browser may deny the clipboard to local files: select the lines for Ctrl+C instead.
      getSelection().selectAllChildren(code);
      button.textContent = told.textContent = "Selected, press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 3000);
  }

  for (const block of document.querySelectorAll(".code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-describedby", block.querySelector("h3").id);
    button.addEventListener("click", () => copy(button, block.querySelector("code")));
    block.insertBefore(button, block.querySelector("pre"));
  }

  // The cloud of scores: points in base64, drawn on a canvas that turns by hand.
  function turning(figure) {
    const [canvas, still] = [figure.querySelector("canvas"), figure.querySelector("svg")];
    const pen = canvas.getContext("2d");
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const data = canvas.dataset;
    const points = new Int16Array(bytes(data.points).buffer);
    const [classes, colours] = [bytes(data.classes), data.colours.split(" ")];
    const [axes, rows] = [JSON.parse(data.axes), JSON.parse(data.rows)];
    const count = classes.length;
    const order = Array.from({ length: count }, (_, i) => i);
    const [x, y, depth] = [0, 1, 2].map(() => new Float64Array(count));
    let [yaw, pitch, wide, asked] = [0.6, 0.45, 0, false];

    function turned(a, b, c) {
      const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
      const front = sy * a + cy * c;
      return [cy * a - sy * c, cp * b - sp * front, sp * b + cp * front];
    }

    function draw() {
      asked = false;
      const box = canvas.getBoundingClientRect();
      const fine = window.devicePixelRatio || 1;
      wide = box.width;
      canvas.width = Math.round(box.width * fine);
      canvas.height = Math.round(box.height * fine);
      pen.setTransform(fine, 0, 0, fine, 0, 0);
      const unit = box.width / 3.5;
      const place = ([right, up]) => [box.width / 2 + unit * right, box.height / 2 - unit * up];
      // Drawn for white, as the plots are: in dark mode the style sheet inverts the lightness.
      const [ink, rim] = ["#1c2126", dark.matches ? "#e3dfdb" : "#ffffff"];
      pen.clearRect(0, 0, box.width, box.height);
      pen.font = `${Math.max(11, box.width / 36)}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.strokeStyle = ink;
      pen.lineJoin = "round";
      const ends = axes.map((_, axis) => turned(...[0, 1, 2].map((i) => (i === axis ? 1.15 : 0))));
      pen.globalAlpha = 0.6;
      for (const end of ends) {
        pen.beginPath();
        pen.moveTo(...place(end.map((value) => -value)));
        pen.lineTo(...place(end));
        pen.stroke();
      }
      for (let i = 0; i < count; i++) {
        const at = turned(...[0, 1, 2].map((j) => points[3 * i + j] / 32767));
        [x[i], y[i]] = place(at);
        depth[i] = at[2];
      }
      order.sort((a, b) => depth[a] - depth[b]);
      const size = Math.min(4, Math.max(1.6, (box.width * 1.6) / Math.sqrt(40 * count + 4000)));
      pen.globalAlpha = 0.8;
      for (const i of order) {
        pen.fillStyle = colours[classes[i]];
        pen.beginPath();
        pen.arc(x[i], y[i], size * (1 + 0.25 * depth[i]), 0, 2 * Math.PI);
        pen.fill();
      }
      pen.globalAlpha = 1;
      // Names come last, with a rim, so that points do not hide them.
      pen.strokeStyle = rim;
      pen.fillStyle = ink;
      pen.lineWidth = 4;
      ends.forEach((end, axis) => {
        const [left, top] = place(end.map((value) => 1.08 * value));
        const half = pen.measureText(axes[axis]).width / 2 + 2;
        const middle = Math.min(Math.max(left, half), box.width - half);
        pen.strokeText(axes[axis], middle, top);
        pen.fillText(axes[axis], middle, top);
      });
    }

    const soon = () => { if (!asked) { asked = true; requestAnimationFrame(draw); } };
    const turn = (across, down) => {
      yaw += across;
      pitch = Math.min(Math.PI / 2, Math.max(-Math.PI / 2, pitch + down));
      soon();
    };

    function nearest(event) {
      const box = canvas.getBoundingClientRect();
      const [left, top] = [event.clientX - box.left, event.clientY - box.top];
      let [best, near] = [-1, 100];
      for (const i of order) {
        const apart = (x[i] - left) ** 2 + (y[i] - top) ** 2;
        if (apart <= near) [best, near] = [i, apart];
      }
      figure.querySelector(".at").textContent = best < 0 ? "" : `Pointed at: ${rows[best]}.`;
    }

    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) turn(event.movementX / 150, event.movementY / 150);
      else nearest(event);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
      if (!(event.key in steps)) return;
      event.preventDefault();
      turn(...steps[event.key]);
    });
    dark.addEventListener("change", soon);
    new ResizeObserver(() => { if (canvas.getBoundingClientRect().width !== wide) soon(); }).observe(canvas);
    still.style.display = "none";
    canvas.hidden = figure.querySelector(".turn").hidden = false;
    draw();
  }

  document.querySelectorAll(".space").forEach(turning);
})();
