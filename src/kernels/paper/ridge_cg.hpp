// Many ridge problems with one sparse X: (s_c X^T X + lam I) w_c = X^T t_c for the columns c of W, by conjugate gradients
// with the Jacobi preconditioner. The columns of a panel advance in lock-step and share each pass over X; every column has
// its own step lengths and stands still once it has converged, and a panel ends when all of its columns have. Panels are
// independent: threads never wait for each other, and the bits of a column depend on that column only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csr.hpp"
#include "spmm.hpp"
#include "threads.hpp"

namespace blockxmc::ridge_cg {

using spmm::kWidth;
using spmm::Panel;
using spmm::Row;

struct Problem {
    CsrView X;             // n x d
    CsrView Xt;            // d x n, its transpose
    const float *squares; // d: diagonal of X^T X
    const float *s;        // k
    const float *T;        // n x k
    float *W;              // d x k: start in, solution out
    int32_t *steps;        // k: steps taken
    int64_t n_columns;     // k
    float lam;
    double tol; // a column has converged when its residual is this small relative to X^T t_c
    int max_steps;
};

// float32 vectors, float64 sums: one number per column.
union alignas(128) Sums {
    typedef double Lanes64 __attribute__((vector_size(128)));
    Lanes64 lanes;
    double of[kWidth];

    BLOCKXMC_INLINE void add_product(const Row &a, const Row &b) {
        lanes += __builtin_convertvector(a.lanes, Lanes64) * __builtin_convertvector(b.lanes, Lanes64);
    }
};

// The state of one panel; a thread uses it for many panels in turn.
struct Solver {
    const Problem &in;
    Panel rows, w, r, p, q; // n, d, d, d, d
    Row s, alpha, beta;
    Sums target, rz, rr, pq; // |X^T t|^2, r.z, r.r, p.q
    int32_t steps[kWidth];
    int64_t first = 0, count = 0;

    explicit Solver(const Problem &problem)
        : in(problem), rows(problem.X.n_rows), w(problem.X.n_cols), r(w.size()), p(w.size()), q(w.size()) {}

    BLOCKXMC_INLINE void precondition(int64_t f, Row &z) const { z.lanes = r[f].lanes / (s.lanes * in.squares[f] + in.lam); }

    // r = X^T t - (s X^T X + lam) w;  p = r / preconditioner
    BLOCKXMC_INLINE void start(int64_t item) {
        first = item * kWidth;
        count = std::min<int64_t>(kWidth, in.n_columns - first);
        s = alpha = beta = Row{};
        target = rz = rr = Sums{};
        std::fill(steps, steps + kWidth, 0);
        std::copy(in.s + first, in.s + first + count, s.of);
        spmm::load(rows, in.T, in.n_columns, first, count);
        spmm::load(w, in.W, in.n_columns, first, count);
        for (int64_t f = 0; f < in.X.n_cols; ++f) {
            spmm::row_times(in.Xt, f, rows, r[f]);
            target.add_product(r[f], r[f]);
        }
        spmm::panel_times(in.X, w, rows);
        for (int64_t f = 0; f < in.X.n_cols; ++f) {
            spmm::row_times(in.Xt, f, rows, q[f]);
            r[f].lanes -= s.lanes * q[f].lanes + in.lam * w[f].lanes;
            precondition(f, p[f]);
            rz.add_product(r[f], p[f]);
            rr.add_product(r[f], r[f]);
        }
    }

    BLOCKXMC_INLINE bool moving(int c) const { return rr.of[c] > in.tol * in.tol * target.of[c] && rz.of[c] > 0; }

    BLOCKXMC_INLINE bool converged() const {
        bool any = false;
        for (int c = 0; c < count; ++c) any |= moving(c);
        return !any;
    }

    // q = (s X^T X + lam) p;  alpha = r.z / p.q, or zero for a column that has converged
    BLOCKXMC_INLINE void choose_lengths() {
        spmm::panel_times(in.X, p, rows);
        pq = Sums{};
        for (int64_t f = 0; f < in.X.n_cols; ++f) {
            spmm::row_times(in.Xt, f, rows, q[f]);
            q[f].lanes = s.lanes * q[f].lanes + in.lam * p[f].lanes;
            pq.add_product(p[f], q[f]);
        }
        for (int c = 0; c < count; ++c) {
            const bool step = moving(c) && pq.of[c] > 0;
            alpha.of[c] = step ? static_cast<float>(rz.of[c] / pq.of[c]) : 0.0f;
            steps[c] += step;
        }
    }

    // w += alpha p;  r -= alpha q;  p = r / preconditioner + beta p
    BLOCKXMC_INLINE void move() {
        const Sums rz_before = rz;
        rz = rr = Sums{};
        for (int64_t f = 0; f < in.X.n_cols; ++f) {
            w[f].lanes += alpha.lanes * p[f].lanes;
            r[f].lanes -= alpha.lanes * q[f].lanes;
            precondition(f, q[f]); // q has served: its place holds r / preconditioner now
            rz.add_product(r[f], q[f]);
            rr.add_product(r[f], r[f]);
        }
        for (int c = 0; c < count; ++c)
            beta.of[c] = alpha.of[c] != 0 ? static_cast<float>(rz.of[c] / rz_before.of[c]) : 0.0f;
        for (int64_t f = 0; f < in.X.n_cols; ++f) p[f].lanes = q[f].lanes + beta.lanes * p[f].lanes;
    }

    BLOCKXMC_INLINE void solve(int64_t item, const Watch &watch) {
        start(item);
        for (int step = 0; step < in.max_steps && !converged() && !watch.cancelled(); ++step) {
            choose_lengths();
            move();
        }
        spmm::store(w, in.W, in.n_columns, first, count);
        std::copy(steps, steps + count, in.steps + first);
        watch.advance(count);
    }
};

using Solve = void (*)(Solver &, int64_t, const Watch &);

inline void solve_plain(Solver &solver, int64_t item, const Watch &watch) { solver.solve(item, watch); }
BLOCKXMC_TARGET("avx2")
inline void solve_avx2(Solver &solver, int64_t item, const Watch &watch) { solver.solve(item, watch); }
BLOCKXMC_TARGET("avx512f")
inline void solve_avx512(Solver &solver, int64_t item, const Watch &watch) { solver.solve(item, watch); }

inline void solve_all(const Problem &in, int n_threads, const Watch &watch) {
    const Solve solve = widest<Solve>(solve_plain, solve_avx2, solve_avx512);
    std::vector<std::unique_ptr<Solver>> solvers(worker_count(spmm::n_panels(in.n_columns), n_threads));
    parallel_for(spmm::n_panels(in.n_columns), n_threads, [&](int64_t item, int worker) {
        if (watch.cancelled()) return;
        if (!solvers[worker]) solvers[worker] = std::make_unique<Solver>(in);
        solve(*solvers[worker], item, watch);
    });
}

} // namespace blockxmc::ridge_cg
