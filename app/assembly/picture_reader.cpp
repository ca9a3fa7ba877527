#include "app/assembly/picture_reader.hpp"

#include <fmt/format.h>

#include "io/images/picture.hpp"
#include "io/images/processor.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

class Reader final : public PictureReader {
 public:
  explicit Reader(const ImageProcessorConfig& processor) : processor_(processor) {}

  [[nodiscard]] std::vector<float> patches(std::span<const std::byte> file, const PictureGrid& grid,
                                           const std::string& name) const override {
    const io::ProcessedPicture picture =
        io::process(processor_, io::decode_picture(file, name), name);
    if (picture.grid != grid) {
      throw DataError(
          fmt::format("{}: expected {} x {} patches, as when prompts were read, found "
                      "{} x {}",
                      name, grid.rows, grid.columns, picture.grid.rows, picture.grid.columns));
    }
    return io::patches_of(processor_, picture);
  }

 private:
  ImageProcessorConfig processor_;
};

}  // namespace

std::shared_ptr<const PictureReader> make_picture_reader(const Inputs& inputs) {
  if (inputs.sizes.largest_picture == 0) return nullptr;
  return std::make_shared<Reader>(*inputs.picture_processor);
}

}  // namespace paceline::app
